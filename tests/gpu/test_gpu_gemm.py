"""The batch-reduce GEMM against NumPy: rows and windows, pairs and single floats, parts of sums, groups."""

import itertools
from typing import Any

import numpy as np
import pytest
from support.gpu_simulate import launch
from support.noise import noise

from bslite.kernels.cuda import KERNELS
from bslite.kernels.cuda.gemm.tile import Tile

TINY = (16, 8, 4, 4)  # 8 threads
NUMBERS = dict.fromkeys(KERNELS["gemm"].scalars, 0) | {
    "inner": 1, "planes": 1, "lines": 1, "step_d": 1, "step_h": 1, "step_w": 1, "have_d": 1, "have_h": 1,
    "have_w": 1, "taps_h": 1, "taps_w": 1, "next_d": 1, "next_h": 1, "next_w": 1,
}  # fmt: skip
VARIANT = {"tile": TINY, "window": 0, "across": 0, "scatter": 0, "bias": 0, "residual": 0, "code": "identity",
           "before": "none", "before_code": "identity", "tensor": 0}  # fmt: skip
#: A tile of multiply-adds, and one of tensor cores, whose products a whole warp makes together.
WAYS = {"multiply-adds": {}, "tensor cores": {"tile": (32, 16, 4, 4), "tensor": 1}}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def run(
    cell: int,
    arrays: dict[str, Any],
    numbers: dict[str, int],
    out: int,
    batch: int = 1,
    splits: int = 1,
    **variant: Any,
) -> np.ndarray[Any, Any]:
    """What the kernel makes of an output of ``out`` floats; numbers in cells. What it leaves alone is 7."""
    kernel = KERNELS["gemm_pairs" if cell == 2 else "gemm"]
    unused = np.zeros(2, np.float32)
    given = {"biases": unused, "r": unused, "scale": unused, "shift": unused} | arrays
    given |= {"y": np.full(out, 7, np.float32)}
    v = VARIANT | variant
    tile = Tile(*v["tile"], v["tensor"])
    n = {"chunk": numbers["terms"], "col_tiles": -(-numbers["cols"] // tile.cols)} | numbers
    grid = (n["col_tiles"] * -(-n["rows"] // tile.rows), batch, splits)
    made = launch(kernel, grid, (tile.threads, 1, 1), {**NUMBERS, **n, **given}, **v)
    return made["y"]


def close(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> None:
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("cell", "m", "n", "k"), [(1, 1, 1, 1), (1, 9, 17, 9), (2, 11, 18, 22), (2, 8, 16, 8)]
)
@pytest.mark.parametrize(
    "way", [*WAYS.values(), {"tile": (16, 64, 4, 4)}, {"tile": (64, 32, 8, 4), "tensor": 1}]
)
def test_rows(cell: int, m: int, n: int, k: int, way: dict[str, Any]) -> None:
    """A dense product with bias, residual and activation; rows of y further apart than they are long."""
    a, w, bias, r = noise(m, k), noise(n, k, seed=1), noise(n, seed=2), noise(m, n, seed=3)
    step = n + 2
    numbers = {"rows": m, "cols": n, "terms": k // cell, "x_row": k // cell, "w_row": k // cell,
               "y_row": step // cell, "r_row": n // cell}  # fmt: skip
    y = run(
        cell, {"x": a, "w": w, "biases": bias, "r": r}, numbers, m * step, bias=1, residual=1,
        code="relu", **way,
    ).reshape(m, step)  # fmt: skip
    close(y[:, :n], np.maximum(a.astype(float) @ w.T + bias + r, 0))
    assert (y[:, n:] == 7).all()


@ways
@pytest.mark.parametrize("cell", [1, 2])
def test_matrices(cell: int, way: dict[str, Any]) -> None:
    """Batches of products whose second operand has contiguous columns; one axis of the batch repeats it."""
    m, n, k = 9, 18, 10
    a, b = noise(2, 3, m, k), noise(2, k, n, seed=1)
    c = cell
    numbers = {"rows": m, "cols": n, "terms": k // c, "inner": 3,
               "x_outer": 3 * m * k // c, "x_inner": m * k // c,
               "w_outer": k * n // c, "w_inner": 0, "y_outer": 3 * m * n // c, "y_inner": m * n // c,
               "x_row": k // c, "w_row": n // c, "y_row": n // c}  # fmt: skip
    y = run(cell, {"x": a, "w": b}, numbers, 6 * m * n, batch=6, across=1, **way)
    close(y.reshape(2, 3, m, n), a.astype(float) @ b[:, None])


@ways
@pytest.mark.parametrize("cell", [1, 2])
def test_splits(cell: int, way: dict[str, Any]) -> None:
    """Parts of a sum: each its own terms, none twice, the last one short."""
    m, n, k, chunk = 5, 16, 36, 16
    a, w = noise(m, k), noise(n, k, seed=1)
    numbers = {"rows": m, "cols": n, "terms": k // cell, "chunk": chunk // cell, "x_row": k // cell,
               "w_row": k // cell, "y_row": n // cell, "y_split": m * n // cell}  # fmt: skip
    y = run(cell, {"x": a, "w": w}, numbers, 3 * m * n, splits=3, **way).reshape(3, m, n)
    for part in range(3):
        at = slice(part * chunk, (part + 1) * chunk)
        close(y[part], a[:, at].astype(float) @ w[:, at].T)


def windows(x: np.ndarray[Any, Any], w: np.ndarray[Any, Any], pad: Any, step: Any, apart: Any) -> Any:
    """Convolution of ``[N, D, H, W, C]`` by ``[K, T, R, S, C]``, float64, from its definition."""
    x = np.pad(x.astype(float), ((0, 0), *((p, p) for p in pad), (0, 0)))
    made = [
        (n - d * (t - 1) - 1) // s + 1
        for n, t, s, d in zip(x.shape[1:4], w.shape[1:4], step, apart, strict=True)
    ]
    y = np.zeros((x.shape[0], *made, w.shape[0]))
    for tap in itertools.product(*map(range, w.shape[1:4])):
        at = [
            slice(t * d, t * d + s * (m - 1) + 1, s)
            for t, d, s, m in zip(tap, apart, step, made, strict=True)
        ]
        y += x[(slice(None), *at)] @ w[(slice(None), *tap)].T.astype(float)
    return y


def volume_numbers(cell: int, x: Any, w: Any, y: Any, pad: Any, step: Any, apart: Any) -> dict[str, int]:
    _, d, h, v, c = x.shape
    k, t, r, s, depth = w.shape
    c, depth = c // cell, depth // cell
    return {
        "rows": y[..., 0].size, "cols": k, "terms": t * r * s * depth, "depth": depth,
        "w_row": t * r * s * depth,
        "planes": y.shape[1], "lines": y.shape[2], "pixels": y.shape[3],
        "x_image": d * h * v * c, "x_plane": h * v * c, "x_line": v * c, "x_row": c,
        "start_d": -pad[0], "start_h": -pad[1], "start_w": -pad[2], "step_d": step[0], "step_h": step[1],
        "step_w": step[2], "have_d": d, "have_h": h, "have_w": v, "taps_h": r, "taps_w": s,
        "next_d": apart[0], "next_h": apart[1], "next_w": apart[2], "y_row": k // cell,
    }  # fmt: skip


CASES = [
    (1, (2, 1, 5, 6, 3), (5, 1, 3, 3), (0, 1, 1), (1, 1, 1), (1, 1, 1)),
    (1, (1, 1, 9, 8, 1), (3, 1, 5, 4), (0, 2, 1), (1, 2, 3), (1, 1, 1)),
    (2, (2, 1, 5, 4, 10), (18, 1, 3, 3), (0, 1, 1), (1, 1, 1), (1, 1, 1)),
    (2, (1, 1, 9, 7, 2), (4, 1, 3, 2), (0, 2, 1), (1, 1, 2), (1, 2, 3)),
    (2, (1, 3, 4, 5, 4), (6, 3, 2, 3), (1, 0, 1), (2, 1, 1), (1, 2, 1)),
    (1, (1, 3, 3, 4, 3), (5, 2, 3, 3), (1, 1, 1), (1, 1, 2), (2, 1, 1)),
]


@ways
@pytest.mark.parametrize("case", CASES)
def test_convolution(case: Any, way: dict[str, Any]) -> None:
    """Windows that leave the image, strided and dilated; y evenly spaced and with a stride per axis."""
    cell, x_shape, (k, *taps), pad, step, apart = case
    x, w, bias = noise(*x_shape), noise(k, *taps, x_shape[-1], seed=1), noise(k, seed=2)
    want = windows(x, w, pad, step, apart) + bias
    numbers = volume_numbers(cell, x, w, want, pad, step, apart)
    window = 3 if taps[0] > 1 else 2
    arrays = {"x": x, "w": w, "biases": bias}
    close(run(cell, arrays, numbers, want.size, window=window, bias=1, **way).reshape(want.shape), want)
    n, d, p, q, _ = want.shape
    wide = (n, d + 1, p + 2, 2 * q, k)
    at = np.cumprod([1, *wide[:0:-1]])[1:] // cell  # strides of pixels, lines, planes, images
    scattered = {
        **numbers,
        "y_row": int(2 * at[0]),
        "y_line": int(at[1]),
        "y_plane": int(at[2]),
        "y_image": int(at[3]),
    }
    y = run(cell, arrays, scattered, int(np.prod(wide)), window=window, scatter=1, bias=1, **way).reshape(
        wide
    )
    close(y[:, :d, :p, ::2], want)
    y[:, :d, :p, ::2] = 7
    assert (y == 7).all()


@pytest.mark.parametrize("cell", [1, 2])
def test_groups(cell: int) -> None:
    """Groups are blocks along y: channels and filters of their own."""
    x, w, bias = noise(1, 1, 4, 3, 8), noise(8, 1, 3, 3, 4, seed=1), noise(8, seed=2)
    parts = [windows(x[..., g : g + 4], w[g : g + 4], (0, 1, 1), (1, 1, 1), (1, 1, 1)) for g in (0, 4)]
    want = np.concatenate(parts, -1) + bias
    numbers = volume_numbers(cell, x, w, want, (0, 1, 1), (1, 1, 1), (1, 1, 1)) | {
        "cols": 4, "inner": 2, "x_inner": 4 // cell, "w_inner": 4 * 36 // cell, "y_inner": 4 // cell,
        "bias_inner": 4,
    }  # fmt: skip
    y = run(cell, {"x": x, "w": w, "biases": bias}, numbers, want.size, batch=2, window=2, bias=1)
    close(y.reshape(want.shape), want)


@ways
def test_nothing_beyond_the_sum_counts(way: dict[str, Any]) -> None:
    """NaN and infinities reach the rows and columns they belong to, and no other."""
    a, w = noise(9, 9), noise(17, 9, seed=1)
    a[3, 8], w[16, 0] = np.nan, np.inf
    numbers = {"rows": 9, "cols": 17, "terms": 9, "x_row": 9, "w_row": 9, "y_row": 17}
    y = run(1, {"x": a, "w": w}, numbers, 9 * 17, **way).reshape(9, 17)
    bad = ~np.isfinite(y)
    assert bad[3].all()
    assert bad[:, 16].all()
    assert bad.sum() == 9 + 17 - 1


@pytest.mark.parametrize("tile", [(128, 128, 8, 8), (64, 64, 8, 4), (128, 16, 8, 4), (32, 32, 4, 4)])
def test_threads_cover_the_tile(tile: tuple[int, int, int, int]) -> None:
    """Every output of a tile larger than the product is written once; the sum is short, to be quick."""
    m, n, k = 33, 20, 2
    a, w = noise(m, k), noise(n, k, seed=1)
    numbers = {"rows": m, "cols": n, "terms": 1, "x_row": 1, "w_row": 1, "y_row": n // 2}
    close(run(2, {"x": a, "w": w}, numbers, m * n, tile=tile).reshape(m, n), a.astype(float) @ w.T)


NUMBERS_WITHOUT_PARTS = {
    "NaN": [np.nan], "a NaN of ones": [np.uint32(0x7FFFFFFF).view(np.float32)],
    "infinities": [np.inf, -np.inf],
    "what rounds to infinity": [3.4028235e38], "sums that overflow": [3e38, 3e38],
}  # fmt: skip


@pytest.mark.parametrize("numbers", NUMBERS_WITHOUT_PARTS.values(), ids=NUMBERS_WITHOUT_PARTS)
def test_numbers_without_parts(numbers: list[float]) -> None:
    """Where tensor cores cannot, multiply-adds compute the block again: the same bits as by them alone."""
    a, w = noise(33, 11), np.abs(noise(17, 11, seed=1))
    a[5, : len(numbers)] = numbers
    sizes = {"rows": 33, "cols": 17, "terms": 11, "x_row": 11, "w_row": 11, "y_row": 17}
    with np.errstate(all="ignore"):
        ours, theirs = (
            run(1, {"x": a, "w": w}, sizes, 33 * 17, tile=(32, 16, 4, 4), tensor=tensor).reshape(33, 17)
            for tensor in (1, 0)
        )
        want = a.astype(float) @ w.T
    assert not np.isfinite(theirs[5]).all() or numbers == [3.4028235e38]
    assert ours[:32, :16].tobytes() == theirs[:32, :16].tobytes()  # the block that it is in
    close(ours[32:, :16], want[32:, :16])
