"""Integer arithmetic: an error where a cell of 32 bits does not hold the result; signs of quotients."""

import numpy as np
import pytest
from support.check import Array
from support.graphs import one_op

import bslite
from bslite import InputError, reference
from bslite.spec import ModelSpec

BIG = 2**31 - 1


def model(op: str, *dtypes: str, shape: tuple[int, ...] = (4,), **attrs: object) -> ModelSpec:
    """One op on inputs of these dtypes."""
    return one_op(op, *(np.zeros(shape, dtype) for dtype in dtypes), **attrs)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("op", "x", "y"),
    [
        ("add", BIG, 1),
        ("sub", -BIG, 3),
        ("mul", 65536, 65536),
        ("mul", -(2**31), -(2**31)),
        ("pow", 2, 31),
        ("pow", -3, 21),
        ("pow", 10, 2_000_000_000),
        ("pow", 2, -1),
        ("div", -(2**31), -1),
        *((op, 7, 0) for op in ("div", "floor_div", "fmod", "remainder")),
    ],
)
def test_what_does_not_fit_is_an_error(op: str, x: int, y: int) -> None:
    spec = model(op, "int64", "int64")
    good = ints(1, 2, 3, 4)
    bslite.run(spec, [good, good])
    with pytest.raises(InputError, match="layer"):
        bslite.run(spec, [ints(1, 2, x, 1), ints(1, 1, y, 1)])
    bslite.run(spec, [good, good])  # the flag is down again


@pytest.mark.parametrize("op", ["div", "floor_div", "fmod", "remainder"])
def test_signs_of_quotients(op: str) -> None:
    x, y = (v.reshape(-1) for v in np.meshgrid(ints(-7, -6, -1, 0, 1, 6, 7), ints(-3, -1, 1, 3)))
    want = {
        "div": np.trunc(x / y).astype(np.int64),
        "floor_div": x // y,
        "fmod": np.fmod(x, y),
        "remainder": x % y,
    }[op]
    spec = model(op, "int64", "int64", shape=x.shape)
    for backend in ("cpu", "reference"):
        np.testing.assert_array_equal(bslite.run(spec, [x, y], backend=backend), want)


def test_power_of_small_bases() -> None:
    x, y = (
        v.reshape(-1) for v in np.meshgrid(ints(-1, 0, 1), ints(0, 1, 2, 3, 2_000_000_000, 2_000_000_001))
    )
    want = np.where(y == 0, 1, np.where(x == -1, np.where(y % 2 == 0, 1, -1), x))
    np.testing.assert_array_equal(bslite.run(model("pow", "int64", "int64", shape=x.shape), [x, y]), want)


@pytest.mark.parametrize(
    ("op", "attrs", "values"),
    [
        ("sum", {}, (BIG, 1, 0, 0)),
        ("prod", {}, (65536, 65536, 1, 1)),
        ("prod", {}, (-BIG, BIG, BIG, BIG)),
        ("cumsum", {"axis": 0}, (BIG, 1, -1, -1)),
        ("cumprod", {"axis": 0}, (65536, 65536, 1, 1)),
        ("cumprod", {"axis": 0, "reverse": True}, (0, BIG, BIG, -BIG)),
    ],
)
def test_reductions_that_do_not_fit(op: str, attrs: dict[str, object], values: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="layer"):
        bslite.run(model(op, "int64", **attrs), [ints(*values)])


def test_sums_may_pass_beyond_32_bits() -> None:
    assert bslite.run(model("sum", "int64"), [ints(BIG, BIG, -BIG, -BIG)]) == 0
    assert bslite.run(model("prod", "int64"), [ints(BIG, BIG, BIG, 0)]) == 0


def test_the_reference_too_says_what_does_not_fit() -> None:
    x = np.array([BIG, 1, 2, 3], np.int32)
    with pytest.raises(InputError, match="does not fit int32"):
        reference.run(model("add", "int32", "int32"), [x, x])


def test_dtypes_that_do_not_go_together() -> None:
    for op, dtypes in (
        ("add", ("int64", "int32")),
        ("mul", ("int64", "float32")),
        ("less", ("bool", "bool")),
        ("and", ("float32", "float32")),
        ("where", ("int64", "float32", "float32")),
        ("floor_div", ("float32", "float32")),
        ("mean", ("int64",)),
    ):
        with pytest.raises(bslite.SpecError, match="'layer'"):
            model(op, *dtypes)
