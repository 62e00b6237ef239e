"""A model ready to run, in the words people know: `compile` makes it, from whatever holds the model."""

from bslite.compiled.model import CompiledModel, compile
from bslite.compiled.outputs import Outputs
from bslite.spec.ports import Port

__all__ = ["CompiledModel", "Outputs", "Port", "compile"]
