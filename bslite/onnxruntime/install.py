"""`installed`: bslite in the place of the module ``onnxruntime``, for packages that import that."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

OURS = __name__.rpartition(".")[0]
THEIRS = "onnxruntime"
STATE = ".capi.onnxruntime_pybind11_state"
#: onnxruntime's modules that programs import -> bslite's.
MODULES = {"": "", ".capi": ".capi", STATE: STATE, ".capi._pybind_state": STATE}


@contextmanager
def installed() -> Iterator[ModuleType]:
    """Within the block ``import onnxruntime`` gives `bslite.onnxruntime`.

    A module that has imported onnxruntime before the block keeps it; one first imported within the block
    keeps bslite.
    """
    before = {k: v for k, v in sys.modules.items() if k == THEIRS or k.startswith(f"{THEIRS}.")}
    ours = {THEIRS + theirs: importlib.import_module(OURS + name) for theirs, name in MODULES.items()}
    for name in before:
        del sys.modules[name]
    sys.modules.update(ours)
    try:
        yield ours[THEIRS]
    finally:
        for name in [k for k in sys.modules if k == THEIRS or k.startswith(f"{THEIRS}.")]:
            del sys.modules[name]
        sys.modules.update(before)
