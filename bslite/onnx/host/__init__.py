"""Operators that run in NumPy at run time. To add one, add a function to the file of its family."""

from bslite.onnx.host.node import FIRST, HOST, LAST, HostNode, key_of
from bslite.registry import load_modules

load_modules(__name__)

__all__ = ["FIRST", "HOST", "LAST", "HostNode", "key_of"]
