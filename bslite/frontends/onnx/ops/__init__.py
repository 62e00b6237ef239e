"""Builders of ONNX operators, by family.

To support another operator, add a builder to the file of its family.
"""

from bslite.frontends.onnx.builders import TABLE, find
from bslite.registry import load_modules

load_modules(__name__)

__all__ = ["TABLE", "find"]
