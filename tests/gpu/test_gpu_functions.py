"""Functions of one and two values on a GPU: NaN, infinities, zeros, and arguments far out."""

import numpy as np
import pytest
from support.check import TINY, rel_l2, same_specials
from support.gpu_cases import answers
from support.gpu_simulate import launch
from support.noise import noise

from bslite import ops
from bslite.kernels.contracts.elementwise import FLOATS
from bslite.kernels.cuda import KERNELS
from bslite.kernels.cuda.math import libm, trig
from bslite.kernels.cuda.math.functions import CODES, function_of
from bslite.kernels.cuda.runtime.device import SIMULATED
from bslite.ops import Op
from bslite.passes.fuse import ACTIVATIONS

SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, -1e-30]
X = np.array([*SPECIAL, -3.5, -1.0, -0.75, -0.5, 0.25, 0.5, 1.0, 2.5, 3.0, 40.0, -40.0], np.float32)


@pytest.mark.parametrize("op", [ops.get(name) for name in ACTIVATIONS], ids=lambda op: op.name)
def test_one_value(op: Op) -> None:
    """With the attributes of each sample case."""
    for attrs in {str(case.attrs): case.attrs for case in op.cases()}.values():
        got, exact = answers(op.name, X, **attrs)
        assert same_specials(got, exact), (attrs, got, exact)
        assert rel_l2(got, exact) <= 4 * TINY, attrs


@pytest.mark.parametrize("op", FLOATS)
def test_two_values(op: str) -> None:
    x, z = np.meshgrid(X, X)
    got, exact = answers(op, np.ascontiguousarray(x), np.ascontiguousarray(z))
    with np.errstate(over="ignore"):
        rounded = exact.astype(np.float32)
    assert same_specials(got, rounded)
    assert rel_l2(got, rounded) <= 4 * TINY


@pytest.mark.skipif(not SIMULATED, reason="device functions are none of Python's")
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_of_any_size(name: str) -> None:
    """Rounded as well as float64 can be, over all floats there are."""
    rng = np.random.default_rng(0)
    sizes = rng.standard_normal(300) * 10 ** rng.uniform(-8, 38, 300)
    edges = [2.0**20, -(2.0**20), 2.0**20 - 0.125, np.finfo(np.float32).max, 1e-42]
    x = np.asarray([*sizes, *edges], np.float32)
    got = np.array([getattr(trig, name)(v) for v in x])
    exact = getattr(np, name)(x.astype(np.float64))
    spacing = np.spacing(np.abs(exact.astype(np.float32)))
    assert (np.abs(got - exact) <= 0.51 * spacing).all()


@pytest.mark.skipif(not SIMULATED, reason="device functions are none of Python's")
def test_the_larger_of_zeros_is_the_positive_one() -> None:
    """So that the order of comparisons cannot be seen in the bits."""
    zero, minus = np.float32(0.0), np.float32(-0.0)
    for a, b in ((zero, minus), (minus, zero)):
        assert not np.signbit(libm.larger(a, b))
        assert np.signbit(libm.smaller(a, b))


def test_numbers_and_names_are_the_same_functions() -> None:
    for name, code in CODES.items():
        assert function_of(code) is function_of(name)


@pytest.mark.parametrize("count", [1, 11, 1030])
def test_elements_beyond_the_count_stay(count: int) -> None:
    x = np.resize(X, 1100)
    given = {"x": x, "y": np.full(1100, 7, np.float32), "count": count, "a": 0, "b": 0}
    y = launch(KERNELS["pointwise"], (2,), (256,), given, code=CODES["relu"])["y"]
    np.testing.assert_array_equal(y[:count], np.where(x[:count] < 0, np.float32(0), x[:count]))
    assert (y[count:] == 7).all()


@pytest.mark.parametrize("pixels", [1, 31, 100])
def test_whole_pool_takes_every_pixel_once(pixels: int) -> None:
    x = noise(2, pixels, 5, seed=pixels)
    x[1, pixels - 1, 3] = np.inf
    given = {
        "x": x, "y": np.zeros((2, 5), np.float32), "scale": np.full(5, 2, np.float32),
        "shift": np.full(5, -1, np.float32), "pixels": pixels, "channels": 5, "groups": 2,
        "x_image": 5 * pixels, "x_pixel": 5, "x_channel": 1, "y_image": 5, "y_channel": 1, "a": 0, "b": 0,
    }  # fmt: skip
    for largest in (0, 1):
        y = launch(
            KERNELS["whole_pool"], (4,), (4, 8), given, largest=largest, affine=1, activation="identity",
            lanes=4, sharing=8,
        )["y"].reshape(2, 5)  # fmt: skip
        wide = x.astype(np.float64)
        exact = 2 * (wide.max(1) if largest else wide.mean(1)) - 1
        assert rel_l2(y, exact) <= 4 * TINY
