"""Builders of the linear operators of ai.onnx.ml on float32: one piece with what is around them.

Other types, texts as labels and other transformations are left to `bslite.onnx.host.classical`.
https://github.com/onnx/onnx/blob/main/docs/Operators-ml.md
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bslite.errors import SpecError
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.onnx.builders import onnx_op
from bslite.frontends.onnx.ops.moves import reshaped
from bslite.frontends.onnx.site import Site
from bslite.frontends.onnx.values import Operand, Value, fixed, product

Floats = Sequence[float]


def _rows(x: Operand) -> None:
    if not isinstance(x, Value) or x.dtype != "float32" or x.rank != 2:
        raise Unsupported(f"of {x.dtype} {list(x.shape)}")


def _weighed(s: Site, x: Operand, coefficients: Floats, intercepts: Floats | None, count: int) -> Any:
    """The sums of rows by ``count`` rows of coefficients."""
    _rows(x)
    width = fixed(x.shape[1], "the number of its features")
    if len(coefficients) < count * width or (intercepts and len(intercepts) != count):
        raise SpecError(f"{len(coefficients)} coefficients for {count} sums of {width} features")
    weight = np.asarray(coefficients, np.float32)[: count * width].reshape(count, width)
    params = {"weight": s.const(weight, "weight")}
    if intercepts:
        params["bias"] = s.const(np.asarray(intercepts, np.float32), "bias")
    return s.inner("linear", x, params=params)


def _finished(s: Site, scores: Any, transform: str) -> Any:
    if transform == "NONE":
        return scores
    if transform not in ("SOFTMAX", "LOGISTIC"):
        raise Unsupported(f"with post_transform {transform!r}")
    return s.inner("softmax", scores, axis=1) if transform == "SOFTMAX" else s.inner("sigmoid", scores)


@onnx_op("ai.onnx.ml:LinearRegressor")
def linear_regressor(
    s: Site, x: Operand, *, coefficients: Floats, intercepts: Floats | None = None,
    post_transform: str = "NONE", targets: int = 1,
) -> Operand:  # fmt: skip
    """``x @ coefficients + intercepts``, [rows, targets]."""
    made: Operand = _finished(s, _weighed(s, x, coefficients, intercepts, targets), post_transform)
    return made


@onnx_op("ai.onnx.ml:LinearClassifier")
def linear_classifier(
    s: Site, x: Operand, *, coefficients: Floats, classlabels_ints: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None, intercepts: Floats | None = None, multi_class: int = 0,
    post_transform: str = "NONE",
) -> tuple[Operand, Operand]:  # fmt: skip
    """The label of each row, and [rows, classes] scores. One score alone is that of the second of two."""
    if classlabels_strings:
        raise Unsupported("with texts as labels")
    labels = list(classlabels_ints or ())
    count = len(intercepts) if intercepts else max(len(labels), 1)
    made = _weighed(s, x, coefficients, intercepts, count)
    if count > 1:
        if len(labels) != count:
            raise Unsupported(f"with {len(labels)} labels for {count} scores")
        place = s.inner("argmax", made, axis=1)
        scores = _finished(s, made, post_transform)
    else:
        above = s.inner("greater", made, s.const(np.float32(0), "zero"))
        place = s.inner("cast", reshaped(s, above, (x.shape[0],), last=False), to="int64")
        scores = _finished(s, made, post_transform)
        if len(labels) == 2:
            other = s.inner("sub", s.const(np.float32(1), "one"), scores)
            scores = s.inner("concat", other, scores, axis=1)
        else:
            labels = [0, 1]
    named = s.const(np.asarray(labels, np.int64), "labels")
    return s.inner("gather", named, place, axis=0), scores


@onnx_op("ai.onnx.ml:Scaler")
def scaler(s: Site, x: Operand, *, offset: Floats | None = None, scale: Floats | None = None) -> Operand:
    """``(x - offset) * scale``."""
    _rows(x)
    made: Any = x
    for op, numbers in (("sub", offset), ("mul", scale)):
        if numbers:
            array = np.asarray(numbers, np.float32)
            made = s.inner(op, made, s.const(array[0] if array.size == 1 else array, op))
    if made is x:
        raise Unsupported("without offset and scale")
    result: Operand = made
    return result


@onnx_op("ai.onnx.ml:Normalizer")
def normalizer(s: Site, x: Operand, *, norm: str = "MAX") -> Operand:
    """Each row over its largest element (MAX), its sum of magnitudes (L1) or its length (L2)."""
    _rows(x)
    over: Any = {"axes": (1,), "keepdim": True}
    if norm == "MAX":
        by = s.inner("amax", x, **over)
    elif norm == "L1":
        by = s.inner("sum", s.inner("abs", x), **over)
    elif norm == "L2":
        by = s.inner("sqrt", s.inner("sum", s.inner("mul", x, x), **over))
    else:
        raise Unsupported(f"with norm {norm!r}")
    nothing = s.inner("equal", by, s.const(np.float32(0), "zero"))
    return s.emit("div", x, s.inner("where", nothing, s.const(np.float32(1), "one"), by))


@onnx_op("ai.onnx.ml:ArrayFeatureExtractor")
def array_feature_extractor(s: Site, x: Operand, places: Operand) -> Operand:
    """The elements at ``places`` of the last axis, [..., places]; of a vector as one row."""
    flat = reshaped(s, places, (product(places.shape),), last=False)
    if x.rank == 1:
        return reshaped(s, s.inner("gather", x, flat, axis=0), (1, product(places.shape)))
    return s.emit("gather", x, flat, axis=x.rank - 1)
