"""bslite: describe a network once, run it with a plain NumPy reference or a fast Numba engine.

    # or from_state_dict("resnet50", weights), or load("model.safetensors")
    spec = bslite.from_torch(module, example)

    y = bslite.run(spec, x)

Importing bslite imports its errors and nothing else: NumPy comes with the first name that needs it, Numba
with the first run, torch only if you use it.
"""

import importlib
from typing import TYPE_CHECKING, Any

from bslite.errors import (
    BsliteError,
    EngineError,
    FileError,
    InputError,
    IntegerRangeError,
    SpecError,
    UnsupportedError,
    WeightsError,
)

if TYPE_CHECKING:
    from bslite.api import run, warmup
    from bslite.arithmetic import Precision, precision
    from bslite.compiled import CompiledModel, compile
    from bslite.dropin import bisect, optimize, report
    from bslite.explanation import Explanation, explain
    from bslite.frontends import from_state_dict, from_torch
    from bslite.gradients import gradient, weights_as_inputs
    from bslite.spec import GraphBuilder, Input, ModelSpec, Node, load, save
    from bslite.streaming import Session, step_model
    from bslite.verification import Verification, verify

__version__ = "0.1.0"

#: Public name -> the module that holds it, imported when the name is first used.
_LAZY = {
    "GraphBuilder": "bslite.spec",
    "Input": "bslite.spec",
    "ModelSpec": "bslite.spec",
    "Node": "bslite.spec",
    "load": "bslite.spec",
    "save": "bslite.spec",
    "run": "bslite.api",
    "precision": "bslite.arithmetic",
    "Precision": "bslite.arithmetic",
    "compile": "bslite.compiled",
    "CompiledModel": "bslite.compiled",
    "from_torch": "bslite.frontends",
    "from_onnx": "bslite.onnx.load",
    "from_state_dict": "bslite.frontends",
    "gradient": "bslite.gradients",
    "weights_as_inputs": "bslite.gradients",
    "Verification": "bslite.verification",
    "verify": "bslite.verification",
    "warmup": "bslite.api",
    "optimize": "bslite.dropin",
    "report": "bslite.dropin",
    "bisect": "bslite.dropin",
    "explain": "bslite.explanation",
    "Explanation": "bslite.explanation",
    "Session": "bslite.streaming",
    "step_model": "bslite.streaming",
}

__all__ = [
    "BsliteError",
    "CompiledModel",
    "EngineError",
    "Explanation",
    "FileError",
    "GraphBuilder",
    "Input",
    "InputError",
    "IntegerRangeError",
    "ModelSpec",
    "Node",
    "Precision",
    "Session",
    "SpecError",
    "UnsupportedError",
    "Verification",
    "WeightsError",
    "__version__",
    "bisect",
    "compile",
    "explain",
    "from_onnx",
    "from_state_dict",
    "from_torch",
    "gradient",
    "load",
    "optimize",
    "precision",
    "report",
    "run",
    "save",
    "step_model",
    "verify",
    "warmup",
    "weights_as_inputs",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'bslite' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
