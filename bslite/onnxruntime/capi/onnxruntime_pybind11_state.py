"""onnxruntime's errors by name: each is the error that bslite raises for the same cause."""

from bslite.errors import BsliteError, EngineError, FileError, InputError, SpecError, UnsupportedError

Fail = BsliteError
InvalidArgument = InputError
NoSuchFile = InvalidProtobuf = NoModel = FileError
InvalidGraph = SpecError
NotImplemented = UnsupportedError
RuntimeException = EPFail = EngineError
