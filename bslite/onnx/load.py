"""`from_onnx`: an ONNX model as a ModelSpec, or, where sizes must be known, as an `OnnxModel`."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from bslite.errors import InputError
from bslite.frontends.onnx.file import read_model
from bslite.frontends.onnx.inputs import check_constants
from bslite.frontends.onnx.read import NotConverted, Reader
from bslite.onnx.model import OnnxModel
from bslite.spec import Array, ModelSpec

#: What to do about a model that one ModelSpec cannot express,
IN_PIECES = (
    "no ModelSpec computes it at once; bslite.compile(model) runs it in several pieces, and bslite.explain "
    "of that says where its time goes"
)
#: and about operators that bslite does not have.
INSTEAD = (
    'bslite.onnx.backend.prepare(model, fallback="warn") runs the rest on the engine and these in '
    "ONNX's reference evaluator"
)


def from_onnx(
    model: Any,
    *,
    name: str | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, Array] | None = None,
) -> ModelSpec | OnnxModel:
    """The model in an ONNX file (its path), in the bytes of one, or in an ``onnx.ModelProto``.

    Any opset. Values are float32, int64, int32, bool, uint8 and int8. Sizes that the file leaves
    open stay free: the one at axis 0 as "N", others under the file's names. An example of them is found
    here, or given in ``shapes``: input name -> example shape. Batches that the file calls by names
    without a meaning, input by input, are one size.

    Where the model cannot be expressed with all of its open sizes left free, the result is an `OnnxModel`,
    which `bslite.run`, `compile`, `verify` and `explain` take as well: the sizes in the way are fixed call by
    call. With ``shapes`` it is a ModelSpec in any case: they are fixed to the example's, with a warning.
    ``constants``: input name -> array to build into the model in the place of that input.

    Layers are named after their nodes (where those have no name, after the node's output), parameters after
    their initialisers. What depends on no input is computed here. External data is read from the model's own
    folder only.

    Raises FileError for a file that cannot be read, SpecError for a model that is wrong, InputError for unfit
    ``shapes`` or ``constants``, UnsupportedError if it uses operators bslite does not have: all of them are
    listed, those that depend on each other too, with the nodes that use them and their share of the flops.
    EngineError if the package onnx is not installed.
    """
    source, constants, shapes = read_model(model), constants or {}, shapes or {}
    check_constants(source, constants)
    reader = Reader(source, name, list(constants), bounded=not shapes and not constants)
    if not shapes and not constants and any(i.shape is None for i in reader.declared):
        return OnnxModel(source)
    try:
        converted = reader.find(shapes, constants)
    except NotConverted as e:
        instead = INSTEAD if constants or not OnnxModel(source).cures(e) else IN_PIECES
        raise NotConverted(f"{e}\n{instead}", e.roots, e.nodes) from None
    lost = [label for label in reader.labels if label not in dict(converted.sizing.names)]
    given = {d for i in reader.declared if i.name in shapes for d in i.shape or ()}
    if (lost and not given.issuperset(lost)) or (
        not given and (converted.sizing.step > 1 or converted.sizing.most)
    ):
        if constants:
            sizes = ", ".join(lost or reader.labels)
            raise InputError(
                f"model {source.name!r} cannot be expressed with the sizes {sizes} left free: "
                "give examples of shapes (shapes=, on the command line --shape)"
            )
        return OnnxModel(source, name=name)
    spec = converted.spec(converted.outputs)
    if lost:
        warnings.warn(
            f"model {spec.name!r}: the free sizes {', '.join(lost)} are fixed to the example's; it cannot be "
            "expressed with them left free",
            stacklevel=2,
        )
    return spec
