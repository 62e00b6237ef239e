"""The framework-agnostic model description: data types, builder, file format, printed table."""

from bslite.spec.build import GraphBuilder
from bslite.spec.graph import Array, Input, Node
from bslite.spec.model import ModelSpec, load, save

__all__ = ["Array", "GraphBuilder", "Input", "ModelSpec", "Node", "load", "save"]
