"""onnxruntime's inner module: its options, and its errors, each that of bslite for the same cause."""

from bslite.errors import BsliteError, EngineError, FileError, InputError, SpecError, UnsupportedError
from bslite.onnxruntime.binding import OrtValue
from bslite.onnxruntime.environment import get_all_providers, get_available_providers, get_device
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
    "NotImplemented",
    "OrtValue",
    "RunOptions",
    "RuntimeException",
    "SessionOptions",
    "get_all_providers",
    "get_available_providers",
    "get_device",
]

Fail = BsliteError
InvalidArgument = InputError
NoSuchFile = InvalidProtobuf = NoModel = FileError
InvalidGraph = SpecError
NotImplemented = UnsupportedError
RuntimeException = EPFail = EngineError
