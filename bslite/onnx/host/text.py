"""Texts: arrays of Python strings, and the operators on them. The engine knows no texts."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from bslite.errors import InputError, UnsupportedError
from bslite.onnx.host.node import host_op
from bslite.spec import Array

DIGITS = 8  # of a number as a text, as onnxruntime has it


def texts(x: Array) -> Array:
    """Numbers as texts: floating-point ones as short as ``printf``'s ``%g`` has them, bools as 1 and 0."""
    if x.dtype.kind in "OU":
        return x
    if x.dtype.kind != "f":
        return x.astype(np.int64 if x.dtype.kind == "b" else x.dtype).astype(str).astype(object)
    special = {"nan": "NaN", "inf": "INF", "-inf": "-INF"}
    made = [special.get(t, t) for t in (f"{v:.{DIGITS}g}" for v in x.reshape(-1).tolist())]
    return np.array(made, object).reshape(x.shape)


def numbers(x: Array, dtype: np.dtype[Any]) -> Array:
    """Texts as numbers. InputError for one that is none."""
    try:
        if dtype.kind in "iu":
            return np.array([int(t) for t in x.reshape(-1)], dtype).reshape(x.shape)
        return np.array([float(t) for t in x.reshape(-1)]).astype(dtype).reshape(x.shape)
    except (ValueError, OverflowError) as e:
        raise InputError(f"a text that is no {dtype}: {e}") from None


def _each(function: Any, *xs: Array) -> Array:
    made = np.frompyfunc(function, len(xs), 1)(*xs)
    return np.asarray(made, object)


@host_op("StringConcat")
def concat(a: Array, b: Array) -> Array:
    """Texts joined, element by element."""
    return _each(lambda s, t: f"{s}{t}", a, b)


@host_op("RegexFullMatch")
def full_match(x: Array, *, pattern: str) -> Array:
    """Whether all of a text matches."""
    try:
        wanted = re.compile(pattern)
    except re.error as e:
        raise InputError(f"the pattern {pattern!r} is wrong ({e})") from None
    return _each(lambda t: wanted.fullmatch(t) is not None, x).astype(bool)


@host_op("StringSplit")
def split(x: Array, *, delimiter: str | None, maxsplit: int | None) -> tuple[Array, Array]:
    """The parts of each text along a new last axis, filled up with empty ones; and how many there are."""
    most = -1 if maxsplit is None else maxsplit
    parts = [str(t).split(delimiter or None, most) for t in x.reshape(-1)]
    longest = max(map(len, parts), default=0)
    filled = np.full((len(parts), longest), "", object)
    for row, found in zip(filled, parts, strict=True):
        row[: len(found)] = found
    counts = np.array([len(p) for p in parts], np.int64)
    return filled.reshape(*x.shape, longest), counts.reshape(x.shape)


@host_op("StringNormalizer")
def normalize(
    x: Array, *, case_change_action: str, is_case_sensitive: int, locale: str | None,
    stopwords: Sequence[str] | None,
) -> Array:  # fmt: skip
    """Texts [C] or [1, C] in lower or upper case, without stop words; one empty text if none is left."""
    if case_change_action not in ("NONE", "LOWER", "UPPER"):
        raise InputError(f"case_change_action {case_change_action!r} is not NONE, LOWER or UPPER")
    if x.ndim not in (1, 2) or (x.ndim == 2 and len(x) != 1):
        raise InputError(f"texts {list(x.shape)}, expected [C] or [1, C]")
    stops = set(stopwords or ()) if is_case_sensitive else {t.lower() for t in stopwords or ()}
    kept = [t for t in map(str, x.reshape(-1)) if (t if is_case_sensitive else t.lower()) not in stops]
    if case_change_action != "NONE":
        kept = [t.lower() if case_change_action == "LOWER" else t.upper() for t in kept]
    made = np.array(kept or [""], object)
    return made.reshape((1, -1) if x.ndim == 2 else (-1,))


@host_op("TfIdfVectorizer")
def tf_idf(
    x: Array, *, max_gram_length: int, max_skip_count: int, min_gram_length: int, mode: str,
    ngram_counts: Sequence[int], ngram_indexes: Sequence[int], pool_int64s: Sequence[int] | None,
    pool_strings: Sequence[str] | None, weights: Sequence[float] | None,
) -> Array:  # fmt: skip
    """Counts of n-grams of each row of ``x``, [C] or [N, C]; as ``mode`` says, whether there is one (IDF), or
    the count times its weight.
    """
    if mode not in ("TF", "IDF", "TFIDF"):
        raise UnsupportedError(f"mode {mode!r}")
    pool: Sequence[Any] = pool_int64s if pool_strings is None else pool_strings  # type: ignore[assignment]
    rows = x.reshape(1, -1) if x.ndim < 2 else x
    places: dict[tuple[Any, ...], int] = {}
    number = 0
    ends = [*ngram_counts[1:], len(pool)]
    for length, (start, end) in enumerate(zip(ngram_counts, ends, strict=True), 1):
        for at in range(start, end, length):
            places[tuple(pool[at : at + length])] = number
            number += 1
    counts = np.zeros((len(rows), max(ngram_indexes, default=-1) + 1))
    for row, made in zip(rows.tolist(), counts, strict=True):
        for length in range(min_gram_length, max_gram_length + 1):
            for skip in range(max_skip_count + 1 if length > 1 else 1):
                for at in range(len(row) - (length - 1) * (skip + 1)):
                    gram = tuple(row[at : at + (length - 1) * (skip + 1) + 1 : skip + 1])
                    if (found := places.get(gram)) is not None:
                        made[ngram_indexes[found]] += 1
    if mode != "TF":
        by_place = np.ones(counts.shape[1])
        if weights is not None:
            by_place[list(ngram_indexes)] = weights
        counts = (counts > 0) * by_place if mode == "IDF" else counts * by_place
    made_all = counts.astype(np.float32)
    return made_all.reshape(-1) if x.ndim < 2 else made_all
