"""What onnxruntime tells of itself and lets a program set for the whole process."""

import platform
from importlib.metadata import version as installed_version
from typing import Any

from bslite.onnx.host import random

PROVIDERS = ("CPUExecutionProvider",)

#: The version of onnxruntime whose interface this is: programs compare it with the least they need.
__version__ = version = "1.24.0"
package_name, cuda_version = "onnxruntime", ""


def get_available_providers() -> list[str]:
    """The execution providers that a session may be asked for."""
    return list(PROVIDERS)


get_all_providers = get_available_providers


def get_device() -> str:
    """ "CPU", as onnxruntime's build for CPUs says."""
    return "CPU"


def get_version_string() -> str:
    """The version of onnxruntime whose interface this is."""
    return __version__


def get_build_info() -> str:
    """What computes, with its version."""
    return f"bslite {installed_version('bslite')}"


def print_debug_info() -> None:
    """Print what `get_build_info` says, and the platform."""
    print(f"{package_name} {__version__}, by {get_build_info()}\nplatform: {platform.platform()}")


def preload_dlls(*unused: Any, **also_unused: Any) -> None:
    """Taken for programs that call it; bslite loads no libraries of CUDA here."""


def has_collective_ops() -> bool:
    """False."""
    return False


def set_global_thread_pool_sizes(intra_op: int, inter_op: int) -> None:
    """Taken for programs that call it; each session's options say how many threads it has."""


def disable_telemetry_events() -> None:
    """Taken for programs that call it; bslite reports nothing to anyone."""


enable_telemetry_events = disable_telemetry_events


def set_default_logger_severity(severity: int) -> None:
    """Taken for programs that call it; bslite writes no log."""


def set_default_logger_verbosity(verbosity: int) -> None:
    """Taken for programs that call it; bslite writes no log."""


def set_seed(seed: int) -> None:
    """Begin the series of random numbers of operators without a seed of their own anew."""
    random.seed(seed)
