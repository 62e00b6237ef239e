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


#: Sums, differences and products at the ends of 32 bits, and one beyond for each.
ENDS = {
    "add": ([BIG, -BIG, -(2**31), 0], [0, -1, 0, -(2**31)], (BIG, 1)),
    "sub": ([BIG, -(2**31), 0, -1], [0, 0, BIG, BIG], (0, -(2**31))),
    "mul": ([65536, -46341, 2**30, -(2**31)], [32767, 46340, -2, 1], (-(2**31), -1)),
    "maximum": ([BIG, -(2**31), -1, 5], [-(2**31), -BIG, 0, -5], None),
    "minimum": ([BIG, -(2**31), -1, 5], [-(2**31), -BIG, 0, -5], None),
}


@pytest.mark.parametrize("count", [1, 15, 16, 70])
@pytest.mark.parametrize("op", ENDS)
def test_registers_of_cells(op: str, count: int) -> None:
    """All cells of a register at once, or one by one where one of them does not fit."""
    first, second, beyond = ENDS[op]
    x, y = np.resize(first, count), np.resize(second, count)
    by_hand = getattr(np, {"add": "add", "sub": "subtract", "mul": "multiply"}.get(op, op))
    spec = model(op, "int64", "int64", shape=x.shape)
    np.testing.assert_array_equal(bslite.run(spec, [x, y]), by_hand(x, y))
    alone = one_op(op, x, np.zeros((), np.int64))  # a number for all cells
    np.testing.assert_array_equal(bslite.run(alone, [x // 2, np.array(-1)]), by_hand(x // 2, -1))
    for place in () if beyond is None else (0, count // 2, count - 1):
        x[place], y[place] = beyond
        with pytest.raises(InputError, match="layer"):
            bslite.run(spec, [x, y])
        x[place], y[place] = 1, 1


@pytest.mark.parametrize("count", [1, 16, 70])
@pytest.mark.parametrize("wrong", [np.nan, np.inf, 2.0**31, -(2.0**31) * 1.001])
def test_floats_that_are_no_integers(count: int, wrong: float) -> None:
    x = np.resize(np.array([0.9, -0.9, 2147483520.0, -(2.0**31), 3.5, -0.0], np.float32), count)
    spec = one_op("cast", x, to="int32")
    np.testing.assert_array_equal(bslite.run(spec, x), np.trunc(x).astype(np.int64))
    for place in (0, count // 2, count - 1):
        changed = x.copy()
        changed[place] = wrong
        with pytest.raises(InputError, match="layer"):
            bslite.run(spec, changed)


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
