"""onnxruntime's Python interface, on bslite: ``import bslite.onnxruntime as ort`` and keep the program.

What a program that runs inference on the CPU uses is here, under the same names and with the same results:
sessions, their options, inputs, outputs and metadata, values and bindings. `installed` puts this module in
the place of ``onnxruntime`` for packages that import that. Options that steer onnxruntime's inside are taken
and have no effect; what asks for something that bslite does not do is an error.
"""

from importlib.metadata import version

from bslite.onnxruntime.binding import IOBinding, OrtValue
from bslite.onnxruntime.install import installed
from bslite.onnxruntime.metadata import ModelMetadata, NodeArg
from bslite.onnxruntime.options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from bslite.onnxruntime.session import PROVIDERS, InferenceSession

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "__version__",
    "get_all_providers",
    "get_available_providers",
    "get_device",
    "get_version_string",
    "installed",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]

__version__ = version("bslite")


def get_available_providers() -> list[str]:
    """The execution providers that a session may be asked for."""
    return list(PROVIDERS)


get_all_providers = get_available_providers


def get_device() -> str:
    """ "CPU", as onnxruntime's build for CPUs says."""
    return "CPU"


def get_version_string() -> str:
    """bslite's version."""
    return __version__


def set_default_logger_severity(severity: int) -> None:
    """Taken for programs that call it; bslite writes no log."""


def set_default_logger_verbosity(verbosity: int) -> None:
    """Taken for programs that call it; bslite writes no log."""


def set_seed(seed: int) -> None:
    """Taken for programs that call it; no operator of bslite draws random numbers."""
