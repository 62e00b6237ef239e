"""onnxruntime's Python interface, on bslite: ``import bslite.onnxruntime as ort`` and keep the program.

What a program that runs inference on the CPU uses is here, under the same names and with the same results:
sessions, their options, inputs, outputs and metadata, values and bindings. `installed` puts this module in
the place of ``onnxruntime`` for packages that import that. Options that steer onnxruntime's inside are taken
and have no effect; what asks for something that bslite does not do is an error, and a name that is not here
an AttributeError.
"""

from typing import Any

from bslite.onnxruntime import capi
from bslite.onnxruntime.binding import IOBinding, OrtValue
from bslite.onnxruntime.devices import OrtAllocatorType, OrtDevice, OrtMemoryInfo, OrtMemType
from bslite.onnxruntime.environment import (
    __version__,
    cuda_version,
    disable_telemetry_events,
    enable_telemetry_events,
    get_all_providers,
    get_available_providers,
    get_build_info,
    get_device,
    get_version_string,
    has_collective_ops,
    package_name,
    preload_dlls,
    print_debug_info,
    set_default_logger_severity,
    set_default_logger_verbosity,
    set_global_thread_pool_sizes,
    set_seed,
    version,
)
from bslite.onnxruntime.install import installed
from bslite.onnxruntime.metadata import ModelMetadata, NodeArg
from bslite.onnxruntime.options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from bslite.onnxruntime.session import InferenceSession

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtAllocatorType",
    "OrtDevice",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "__version__",
    "capi",
    "cuda_version",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "has_collective_ops",
    "installed",
    "package_name",
    "preload_dlls",
    "print_debug_info",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
    "version",
]


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"bslite.onnxruntime, in the place of onnxruntime, has no {name!r}; it has {', '.join(__all__)}"
    )
