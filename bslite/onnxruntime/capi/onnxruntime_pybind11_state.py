"""onnxruntime's inner module: its options, and its errors, each that of bslite for the same cause."""

from bslite.errors import BsliteError, EngineError, FileError, InputError, SpecError, UnsupportedError
from bslite.onnxruntime.binding import OrtValue
from bslite.onnxruntime.devices import OrtAllocatorType, OrtDevice, OrtMemoryInfo, OrtMemType
from bslite.onnxruntime.environment import (
    get_all_providers,
    get_available_providers,
    get_build_info,
    get_device,
    get_version_string,
    set_default_logger_severity,
    set_default_logger_verbosity,
    set_seed,
)
from bslite.onnxruntime.metadata import ModelMetadata, NodeArg
from bslite.onnxruntime.options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)

__all__ = [
    "EPFail",
    "ExecutionMode",
    "ExecutionOrder",
    "Fail",
    "GraphOptimizationLevel",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "ModelMetadata",
    "NoModel",
    "NoSuchFile",
    "NodeArg",
    "NotFound",
    "NotImplemented",
    "OrtAllocatorType",
    "OrtDevice",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtValue",
    "RunOptions",
    "RuntimeException",
    "SessionOptions",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]

Fail = BsliteError
InvalidArgument = InputError
NoSuchFile = NotFound = InvalidProtobuf = NoModel = FileError
InvalidGraph = SpecError
NotImplemented = UnsupportedError
RuntimeException = EPFail = EngineError
