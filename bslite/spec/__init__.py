"""The framework-agnostic model description: data types, builder, file format, printed table."""

from bslite.spec.build import GraphBuilder
from bslite.spec.file import load, save
from bslite.spec.graph import Array, Input, ModelSpec, Node

__all__ = ["Array", "GraphBuilder", "Input", "ModelSpec", "Node", "load", "save"]
