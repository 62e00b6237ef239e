"""bslite: describe a network once, run it with a plain NumPy reference or a fast Numba engine."""

from bslite.errors import (
    BsliteError,
    EngineError,
    FileError,
    InputError,
    SpecError,
    UnsupportedError,
    WeightsError,
)

__version__ = "0.1.0"
__all__ = ["BsliteError", "EngineError", "FileError", "InputError", "SpecError", "UnsupportedError", "WeightsError", "__version__"]
