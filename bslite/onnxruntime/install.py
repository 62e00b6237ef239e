"""`installed`: bslite in the place of the module ``onnxruntime``, for packages that import that."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

OURS = __name__.rpartition(".")[0]
THEIRS = "onnxruntime"
STATE = ".capi.onnxruntime_pybind11_state"
#: onnxruntime's modules that programs import -> bslite's.
COLLECTION = ".capi.onnxruntime_inference_collection"
MODULES = {
    "": "", ".capi": ".capi", STATE: STATE, ".capi._pybind_state": STATE, COLLECTION: COLLECTION
}  # fmt: skip


@contextmanager
def installed() -> Iterator[ModuleType]:
    """Within the block ``import onnxruntime`` gives `bslite.onnxruntime`.

    A module that has imported onnxruntime before the block keeps it; one first imported within the block
    keeps bslite. Packages of Python inside onnxruntime (``onnxruntime.quantization``, for instance) are
    onnxruntime's own where it is installed, and their sessions run on bslite.
    """
    beside = _beside()
    before = {k: v for k, v in sys.modules.items() if k == THEIRS or k.startswith(f"{THEIRS}.")}
    ours = {THEIRS + theirs: importlib.import_module(OURS + name) for theirs, name in MODULES.items()}
    for name in before:
        del sys.modules[name]
    sys.modules.update(ours)
    path = ours[THEIRS].__path__
    added = [folder for folder in beside if folder not in path]  # within another block none is
    path += added
    try:
        yield ours[THEIRS]
    finally:
        path[:] = [folder for folder in path if folder not in added]
        for name in [k for k in sys.modules if k == THEIRS or k.startswith(f"{THEIRS}.")]:
            del sys.modules[name]
        sys.modules.update(before)


def _beside() -> list[str]:
    """The folders of the package onnxruntime, none if it is not installed."""
    try:
        found = importlib.util.find_spec(THEIRS)
    except ValueError:  # a module without a spec stands in its place
        return []
    return list(found.submodule_search_locations or ()) if found else []
