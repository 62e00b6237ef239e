"""The stack kernel: every stage against the reference in float64, and the same bits stage by stage."""

import itertools
from typing import Any

import numpy as np
import pytest
from support.check import TINY, Array, rel_l2
from support.gpu_simulate import launch
from support.noise import noise

from bslite import reference
from bslite.kernels.contracts.cuda.stack import Level, levels_of
from bslite.kernels.cuda import KERNELS
from bslite.kernels.cuda.math.functions import FUNCTIONS
from bslite.kernels.cuda.stack.source import stack_source

BLOCK = "max:3,3,1,1,1,1,1,1 affine relu"


def words_of(stages: str) -> list[str]:
    return stages.split()


def window_shape(word: str, height: int, width: int) -> tuple[int, int]:
    """Rows and columns after a stage."""
    window = levels_of(word)[-1].window
    if window is None:
        return height, width
    high = height + window.top + window.beyond[0]
    wide = width + window.left + window.right
    return (high - window.rows) // window.row_step + 1, (wide - window.cols) // window.col_step + 1


def constants(stages: str, channels: int, seed: int = 0) -> list[Array]:
    """The rows of numbers per channel that each stage takes, ``[rows, channels]``."""
    rng = np.random.default_rng(seed)
    found = []
    for word in words_of(stages):
        window = levels_of(word)[-1].window
        rows = 2 if word == "affine" else 0
        if window is not None and window.kind == "depthwise":
            rows = window.rows * window.cols + window.last
        found.append(np.asarray(rng.uniform(-1.2, 1.2, (rows, channels)), np.float32))
    return found


def launched(
    stages: str, x: Array, numbers: list[Array], outside: list[Array], columns: int, turn: int = 1,
    bands: int = 1, threads: int = 16, known: bool = False, threes: int = 0,
) -> Array:  # fmt: skip
    """The stack's result of x ``[N, H, W, C]``; the memory around it stays as it was. ``known``: steps from
    column to column are compiled in.
    """
    n, h, w, c = x.shape
    sizes = [(h, w)]
    for word in words_of(stages):
        after = window_shape(word, *sizes[-1])
        if levels_of(word)[-1].window is not None:
            sizes.append(after)
    rows, cols = sizes[-1]
    columns = min(columns, cols)
    strips = -(-cols // columns)
    groups = -(-strips * c // threads)
    band_rows = -(-rows // bands)
    bands = -(-rows // band_rows)
    y = np.full((n, rows, cols + 1, c + 2), 7, np.float32)  # a slice of something wider

    def strides(name: str, a: Array) -> dict[str, int]:
        steps = [s // a.itemsize for s in a.strides]
        keys = ("image", "row", "col", "channel")
        return {f"{name}_{key}": s for key, s in zip(keys, steps, strict=True)}

    z, v, *_ = [*outside, x, x]
    given: dict[str, Any] = {
        "x": x, "y": y, "z": z, "v": v, "c": np.concatenate([*numbers, np.zeros((1, c), np.float32)]),
        "sizes": np.array(sizes, np.int32), "channels": c, "strips": strips, "groups": groups, "bands": bands,
        "band_rows": band_rows,
        **strides("x", x), **strides("y", y), **strides("z", z), **strides("v", v),
    }  # fmt: skip
    made = launch(
        KERNELS["stack"], (groups * bands * n,), (threads,), given, stages=stages, columns=columns, turn=turn,
        threads=threads, steps=(c, c + 2) if known else (0, 0), threes=threes,
    )["y"].reshape(y.shape)  # fmt: skip
    assert (made[:, :, cols:] == 7).all()
    assert (made[..., c:] == 7).all()
    return made[:, :, :cols, :c]


@np.errstate(all="ignore")
def expected(stages: str, x: Array, numbers: list[Array], outside: list[Array], dtype: Any) -> Array:
    """Stage by stage by the reference, x ``[N, H, W, C]``."""
    value = x.astype(dtype).transpose(0, 3, 1, 2)
    others = iter(outside)

    def call(op: str, *inputs: Array, params: dict[str, Array] | None = None, **attrs: Any) -> Array:
        return reference.call(op, inputs, params or {}, attrs, dtype)

    for word, given in zip(words_of(stages), numbers, strict=True):
        level: Level = levels_of(word)[-1]
        window = level.window
        if window is not None:
            pads = (window.top, window.left, window.beyond[0], window.right)
            moved: dict[str, Any] = {
                "stride": (window.row_step, window.col_step), "padding": pads, "dilation": (1, 1)
            }  # fmt: skip
            kernel = (window.rows, window.cols)
            if window.kind == "max":
                value = call("max_pool2d", value, kernel=kernel, ceil_mode=False, **moved)
            elif window.kind == "avg":
                value = call(
                    "avg_pool2d", value, kernel=kernel, ceil_mode=False, count_include_pad=False,
                    divisor_override=window.last or None, **moved,
                )  # fmt: skip
            else:
                taps = given[: len(given) - window.last].reshape(*kernel, -1).transpose(2, 0, 1)[:, None]
                params = {"weight": taps} | ({"bias": given[-1]} if window.last else {})
                value = call("conv2d", value, params=params, groups=len(taps), **moved)
        elif word == "affine":
            scale, shift = given.astype(dtype)[:, :, None, None]
            value = value * scale + shift
        elif word.startswith(("with:", "by:")):
            other = next(others).astype(dtype).transpose(0, 3, 1, 2)
            pair = (value, other) if word.startswith("with") else (other, value)
            value = call(word.partition(":")[2], *pair)
        else:
            stage = level.chain[0]
            names = {"clamp": ("low", "high"), "leaky_relu": ("negative_slope",), "silu": ()}
            attrs = dict(zip(names.get(stage.name, ()), stage.numbers, strict=True))
            more: dict[str, Any] = {"silu": {"beta": 1.0}, "clamp": {"flat": False}}
            value = call(stage.name, value, **attrs, **more.get(stage.name, {}))
    return value.transpose(0, 2, 3, 1)


def outside_of(stages: str, x: Array) -> list[Array]:
    """A tensor for each stage that takes one."""
    found: list[Array] = []
    h, w = x.shape[1:3]
    for word in words_of(stages):
        h, w = window_shape(word, h, w)
        if word.startswith(("with:", "by:")):
            found.append(noise(x.shape[0], h, w, x.shape[3], seed=len(found) + 5, scale=2))
    return found


def check(stages: str, x: Array, columns: int, **cut: int) -> None:
    """Three-way; then each stage on its own gives the same bits, and so do other steps and maxima."""
    numbers, outside = constants(stages, x.shape[3]), outside_of(stages, x)
    got = launched(stages, x, numbers, outside, columns, **cut)
    other = launched(stages, x, numbers, outside, columns, **cut, known=True, threes=1)
    assert got.tobytes() == other.tobytes()
    exact = expected(stages, x, numbers, outside, np.float64)
    peer = expected(stages, x, numbers, outside, np.float32)
    assert rel_l2(got, exact) <= 4 * rel_l2(peer, exact) + TINY
    value, others = x, iter(outside)
    for word, given in zip(words_of(stages), numbers, strict=True):
        taken = [next(others)] if word.startswith(("with:", "by:")) else []
        value = np.ascontiguousarray(launched(word, np.ascontiguousarray(value), [given], taken, 3))
    assert value.tobytes() == np.ascontiguousarray(got).tobytes()


STACKS = [
    "relu",
    "affine silu with:add relu by:sub",
    "max:3,3,1,1,1,1,1,1",
    "max:2,2,2,2,0,0,0,0 relu",
    "max:3,3,2,2,1,1,0,1 clamp:-0.5,0.5",
    "max:5,4,1,1,2,2,2,1",
    "max:2,3,3,2,1,0,1,1",
    "avg:3,3,1,1,1,1,1,1,9",
    "avg:3,3,2,2,1,1,1,1,0 affine",
    "avg:2,2,2,2,0,0,0,0,3",
    "depthwise:3,3,1,1,1,1,1,1,1 silu",
    "depthwise:3,2,2,1,1,0,1,1,0 relu",
    "depthwise:1,5,1,2,0,2,0,2,1",
    f"{BLOCK} {BLOCK}",
    f"affine relu {BLOCK} with:add {BLOCK}",
    "depthwise:3,3,1,1,1,1,1,1,1 relu max:3,3,2,2,1,1,1,1 affine",
    "max:3,3,2,2,1,1,1,1 relu avg:3,3,1,1,1,1,1,1,0 by:mul max:2,2,2,2,0,0,0,0",
    "depthwise:3,3,2,2,1,1,1,1,0 clamp:0.0,6.0 depthwise:3,3,1,1,1,1,1,1,1 with:add",
]


@pytest.mark.parametrize("stages", STACKS)
def test_against_the_reference(stages: str) -> None:
    check(stages, noise(2, 9, 10, 3, scale=2), 3, bands=2)


@pytest.mark.parametrize(("columns", "turn", "bands"), [(1, 1, 3), (4, 2, 1), (2, 4, 2), (8, 3, 1)])
def test_any_cut_gives_the_same_bits(columns: int, turn: int, bands: int) -> None:
    stages = f"{BLOCK} depthwise:3,3,2,2,1,1,1,1,1 avg:3,3,1,1,1,1,1,1,0 {BLOCK}"
    x = noise(1, 15, 17, 2, scale=2)
    numbers = constants(stages, 2)
    whole = launched(stages, x, numbers, [], 9)
    for threes in (0, 1):
        other = launched(stages, x, numbers, [], columns, turn=turn, bands=bands, threes=threes)
        assert whole.tobytes() == other.tobytes()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "stages", [BLOCK, f"{BLOCK} {BLOCK}", "avg:3,3,1,1,1,1,1,1,0 relu", "depthwise:3,3,1,1,1,1,1,1,0"]
)
def test_specials_reach_what_reads_them(stages: str, value: float) -> None:
    x = noise(1, 7, 8, 2, scale=2)
    numbers = constants(stages, 2)
    for r, c in itertools.product((0, 3, 6), (0, 4, 7)):
        there = x.copy()
        there[0, r, c, 1] = value
        got = launched(stages, there, numbers, [], 4, threes=1)
        assert np.isfinite(got[..., 0]).all()
        want = expected(stages, there, numbers, [], np.float64)
        for find in (np.isnan, np.isposinf, np.isneginf):
            np.testing.assert_array_equal(find(got), find(want))


def test_padding_never_wins() -> None:
    """All of minus infinity: the maximum is that, not a zero of the padding."""
    x = np.full((1, 4, 5, 1), -np.inf, np.float32)
    assert (launched("max:3,3,1,1,1,1,1,1", x, [np.zeros((0, 1), np.float32)], [], 2) == -np.inf).all()


@pytest.mark.parametrize(
    ("stages", "by_bits"),
    [
        (f"{BLOCK} {BLOCK}", True),
        ("max:3,3,1,1,1,1,1,1 relu max:2,2,2,2,0,0,0,0", True),
        ("affine relu max:3,3,1,1,1,1,1,1", True),
        ("relu max:3,3,1,1,1,1,1,1", False),  # a NaN of the caller's may have a sign
        ("affine silu max:3,3,1,1,1,1,1,1", False),
        ("max:3,3,1,1,1,1,1,1 with:sub relu max:3,3,1,1,1,1,1,1", False),
        ("affine relu max:3,1,1,1,1,0,1,0", False),
        ("affine relu avg:3,3,1,1,1,1,1,1,9", False),
    ],
)
def test_which_maxima_are_of_integers(stages: str, by_bits: bool) -> None:
    names = {"float32": np.float32, "functions": FUNCTIONS, "pairs": {"sub": None}}
    found = [stack_source(stages, 4, 1, 16, (0, 0), threes, names)[0] for threes in (1, 0)]
    assert ["larger_bits" in text for text in found] == [by_bits, False]
