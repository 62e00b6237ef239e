"""`ModelSpec`: the graph together with its file and its printed table."""

from bslite.spec import file
from bslite.spec.graph import Graph
from bslite.spec.table import layer_table
from bslite.spec.tensors import Path


class ModelSpec(Graph):
    """A model: inputs, nodes in topological order, names of the outputs, and a store of parameters.

    ``str()`` is a table of its layers. Raises SpecError on construction if a name is repeated or unknown, or
    if an op's arity, parameters, attributes or shapes do not fit; the message names the layer.
    """

    def save(self, path: Path) -> None:
        """Write the model to one safetensors file; see `bslite.spec.file`."""
        save(self, path)

    def __str__(self) -> str:
        return layer_table(self)


def save(spec: ModelSpec, path: Path) -> None:
    """Write ``spec`` to ``path``, replacing what is there in one step.

    Raises FileError if the file cannot be written, InputError if ``path`` is none, SpecError, naming the
    layer, if the graph cannot be stored.
    """
    file.write(spec, path)


def load(path: Path) -> ModelSpec:
    """Read a model written by `save`.

    Raises FileError, naming the file and the layer, if the file is missing, truncated, corrupt, written by a
    newer bslite, or does not describe a valid model. InputError if ``path`` is none.
    """
    return file.read(path, ModelSpec)
