"""Operators of ai.onnx.ml that are no trees: what scikit-learn's models and preparations export.

https://github.com/onnx/onnx/blob/main/docs/Operators-ml.md
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bslite.errors import InputError, SpecError
from bslite.onnx.host.node import host_op
from bslite.onnx.host.scores import array_of, finished
from bslite.onnx.host.text import numbers, texts
from bslite.spec import Array

ML = "ai.onnx.ml:"


def rows_of(x: Array) -> Array:
    """[rows, features]; one row is allowed to come as [features]."""
    if x.ndim not in (1, 2):
        raise InputError(f"{x.dtype} {list(x.shape)}, expected [rows, features]")
    return x.reshape(1, -1) if x.ndim == 1 else x


def narrow(made: Array, exact: bool) -> Array:
    return made if exact else np.asarray(made, np.float32)


def _matrix(coefficients: Sequence[float], count: int) -> Callable[[Array], Array]:
    """A function of rows: their sums by ``count`` rows of coefficients. What are too many are not read, as
    onnxruntime has it.
    """
    flat = np.asarray(coefficients, np.float64)
    by_width: dict[int, Array] = {}

    def weighed(x: Array) -> Array:
        rows = rows_of(x)
        width = rows.shape[1]
        if width not in by_width:
            if len(flat) < count * width:
                raise InputError(f"{len(flat)} coefficients for {count} sums of {width} features")
            by_width[width] = np.ascontiguousarray(flat[: count * width].reshape(count, width).T)
        return np.asarray(rows.astype(np.float64) @ by_width[width])

    return weighed


@host_op(f"{ML}LinearRegressor")
def linear_regressor(
    x: Array, *, coefficients: Sequence[float], intercepts: Sequence[float] | None, post_transform: str,
    targets: int, exact: bool, cache: dict[str, Any],
) -> Array:  # fmt: skip
    """``x @ coefficients + intercepts``, [rows, targets]."""
    weighed, added = _matrix(coefficients, targets), np.asarray(intercepts or 0.0)

    def call(x: Array) -> Array:
        return narrow(finished(weighed(x) + added, post_transform), exact)

    cache["call"] = call
    return call(x)


@host_op(f"{ML}LinearClassifier")
def linear_classifier(
    x: Array, *, classlabels_ints: Sequence[int] | None, classlabels_strings: Sequence[str] | None,
    coefficients: Sequence[float], intercepts: Sequence[float] | None, multi_class: int, post_transform: str,
    exact: bool, cache: dict[str, Any],
) -> tuple[Array, Array]:  # fmt: skip
    """The label of each row, and [rows, classes] scores. One score alone is that of the second of two."""
    labels: Sequence[Any] = classlabels_ints or classlabels_strings or ()
    count = len(intercepts) if intercepts else max(len(labels), 1)
    weighed, added = _matrix(coefficients, count), np.asarray(intercepts or 0.0)
    two = count == 1 and len(labels) == 2
    named = array_of(labels if count > 1 or two else (0, 1))

    def call(x: Array) -> tuple[Array, Array]:
        made = weighed(x) + added
        place = made.argmax(1) if count > 1 else (made[:, 0] > 0).view(np.int8)
        made = finished(made, post_transform)
        return named[place], narrow(np.concatenate([1 - made, made], 1) if two else made, exact)

    cache["call"] = call
    return call(x)


@host_op(f"{ML}Scaler")
def scaler(
    x: Array, *, offset: Sequence[float] | None, scale: Sequence[float] | None, exact: bool,
    cache: dict[str, Any],
) -> Array:  # fmt: skip
    """``(x - offset) * scale``."""
    less, times = np.asarray(offset or 0.0), np.asarray(scale or 1.0)

    def call(x: Array) -> Array:
        return narrow((x.astype(np.float64) - less) * times, exact)

    cache["call"] = call
    return call(x)


@host_op(f"{ML}Normalizer")
def normalizer(x: Array, *, norm: str, exact: bool, cache: dict[str, Any]) -> Array:
    """Each row over its largest element (MAX), its sum of magnitudes (L1) or its length (L2)."""
    norms: dict[str, Callable[[Array], Array]] = {
        "MAX": lambda wide: wide.max(-1, keepdims=True),
        "L1": lambda wide: np.abs(wide).sum(-1, keepdims=True),
        "L2": lambda wide: np.sqrt(np.square(wide).sum(-1, keepdims=True)),
    }
    if norm not in norms:
        raise SpecError(f"norm {norm!r} is not one of {', '.join(norms)}")

    def call(x: Array) -> Array:
        wide = x.astype(np.float64)
        by = norms[norm](wide)
        by[by == 0] = 1
        return narrow(wide / by, exact)

    cache["call"] = call
    return call(x)


@host_op(f"{ML}Binarizer")
def binarizer(x: Array, *, threshold: float) -> Array:
    """1 where an element is above the threshold, else 0."""
    return (x > x.dtype.type(threshold)).astype(x.dtype)


@host_op(f"{ML}Imputer")
def imputer(
    x: Array, *, imputed_value_floats: Sequence[float] | None, imputed_value_int64s: Sequence[int] | None,
    replaced_value_float: float, replaced_value_int64: int,
) -> Array:  # fmt: skip
    """One value, NaN for instance, replaced by that of its feature, or of all."""
    is_float = x.dtype.kind == "f"
    values = np.asarray(imputed_value_floats if is_float else imputed_value_int64s, x.dtype)
    wrong = replaced_value_float if is_float else replaced_value_int64
    found = np.isnan(x) if is_float and np.isnan(wrong) else x == x.dtype.type(wrong)
    return np.where(found, values, x)


@host_op(f"{ML}LabelEncoder")
def label_encoder(x: Array, *, cache: dict[str, Any], opset: int, **given: Any) -> Array:
    """What each key stands for; of an unknown one, the default."""
    if "table" not in cache:
        cache["table"] = _labels(opset, given, x.dtype.kind in "OU")
    table, default, dtype = cache["table"]
    made = [table.get(k, default) for k in x.reshape(-1).tolist()]
    return np.array(made, dtype).reshape(x.shape)


def _labels(opset: int, given: dict[str, Any], texts: bool) -> tuple[dict[Any, Any], Any, Any]:
    """Keys with values, the default, and the dtype of values."""
    if opset < 2:
        classes = list(given["classes_strings"] or ())
        if texts:
            return {c: i for i, c in enumerate(classes)}, given["default_int64"], np.int64
        return dict(enumerate(classes)), given["default_string"], object
    kinds = {"string": object, "int64": np.int64, "float": np.float32}

    def side(what: str) -> tuple[str, list[Any], Any]:
        tensor = given.get(f"{what}_tensor")
        if tensor is not None:
            return "tensor", tensor.reshape(-1).tolist(), tensor.dtype
        kind = next((k for k in kinds if given.get(f"{what}_{k}s")), "")
        if not kind:
            raise SpecError(f"it has no {what}")
        values = given[f"{what}_{kind}s"]
        exact = np.asarray(values, np.float32).tolist() if kind == "float" else list(values)
        return kind, exact, kinds[kind]

    _, keys, _ = side("keys")
    kind, values, dtype = side("values")
    if len(keys) != len(values):
        raise SpecError(f"{len(keys)} keys, {len(values)} values")
    default = given.get("default_tensor")
    default = default.reshape(-1).tolist()[0] if default is not None else given.get(f"default_{kind}")
    if default is None:
        default = {"O": "_Unused", "i": -1}.get(np.dtype(dtype).kind, -0.0)
    return dict(zip(keys, values, strict=True)), default, dtype


@host_op(f"{ML}CategoryMapper")
def category_mapper(
    x: Array, *, cats_int64s: Sequence[int], cats_strings: Sequence[str], default_int64: int,
    default_string: str,
) -> Array:  # fmt: skip
    """Texts as their numbers, or numbers as their texts."""
    texts = x.dtype.kind in "OU"
    pairs = (cats_strings, cats_int64s) if texts else (cats_int64s, cats_strings)
    table: dict[Any, Any] = dict(zip(*pairs, strict=True))
    default = default_int64 if texts else default_string
    made = [table.get(k, default) for k in x.reshape(-1).tolist()]
    return np.array(made, np.int64 if texts else object).reshape(x.shape)


@host_op(f"{ML}OneHotEncoder")
def one_hot_encoder(
    x: Array, *, cats_int64s: Sequence[int] | None, cats_strings: Sequence[str] | None, zeros: int
) -> Array:
    """Along a new last axis 1 at the place of an element's category; unknown ones are zeros if ``zeros``."""
    texts = x.dtype.kind in "OU"
    cats = np.array(cats_strings, object) if texts else np.asarray(cats_int64s)
    made = np.asarray((x if texts else x.astype(np.int64))[..., None] == cats)
    if not zeros and not made.any(-1).all():
        raise InputError("an element is of no category")
    return made.astype(np.float32)


@host_op(f"{ML}ArrayFeatureExtractor")
def array_feature_extractor(x: Array, places: Array) -> Array:
    """Elements at places along the last axis."""
    if (places < 0).any() or (places >= x.shape[-1]).any():
        raise InputError(f"a place is out of range for {x.shape[-1]}")
    made = x[..., places.reshape(-1)]
    return made.reshape(1, -1) if x.ndim == 1 else made


@host_op(f"{ML}FeatureVectorizer")
def feature_vectorizer(*xs: Array, inputdimensions: Sequence[int] | None, exact: bool) -> Array:
    """Rows side by side, each input cut or filled up with zeros to its number of features."""
    parts = []
    for x, size in zip(xs, inputdimensions or [rows_of(x).shape[1] for x in xs], strict=True):
        rows = rows_of(x)[:, :size]
        parts.append(np.pad(rows, [(0, 0), (0, size - rows.shape[1])]))
    return narrow(np.concatenate(parts, 1), exact)


@host_op(f"{ML}ZipMap", first=True)
def zip_map(
    x: Array, *, classlabels_int64s: Sequence[int] | None, classlabels_strings: Sequence[str] | None,
    cache: dict[str, Any],
) -> list[dict[Any, float]]:  # fmt: skip
    """For each row a dict from label to score."""
    labels: Sequence[Any] = classlabels_int64s or classlabels_strings or ()

    def call(x: Array) -> list[dict[Any, float]]:
        rows = rows_of(x)
        if rows.shape[1] != len(labels):
            raise InputError(f"{rows.shape[1]} scores, {len(labels)} labels")
        return [dict(zip(labels, row, strict=True)) for row in rows.tolist()]

    cache["call"] = call
    return call(x)


@host_op(f"{ML}DictVectorizer", first=True)
def dict_vectorizer(
    x: dict[Any, Any], *, int64_vocabulary: Sequence[int] | None, string_vocabulary: Sequence[str] | None
) -> Array:
    """A map's values in the order of a vocabulary, zero for what it lacks."""
    words: Sequence[Any] = int64_vocabulary or string_vocabulary or ()
    made = np.array([[x.get(word, 0) for word in words]])
    return made.astype(np.float32) if made.dtype.kind == "f" else made


@host_op(f"{ML}CastMap", first=True)
def cast_map(x: dict[int, Any], *, cast_to: str, map_form: str, max_map: int) -> Array:
    """A map's values in the order of its keys, or (SPARSE) at the places that its keys are."""
    if cast_to not in ("TO_FLOAT", "TO_INT64", "TO_STRING") or map_form not in ("DENSE", "SPARSE"):
        raise SpecError(f"cast_to {cast_to!r}, map_form {map_form!r}")
    values = [x.get(k, 0) for k in range(max_map)] if map_form == "SPARSE" else [x[k] for k in sorted(x)]
    row = np.array([values], object if isinstance(values[0], str) else None)
    if cast_to == "TO_STRING":
        return texts(row)
    dtype = np.dtype(np.float32 if cast_to == "TO_FLOAT" else np.int64)
    return numbers(row, dtype) if row.dtype == object else row.astype(dtype)
