"""Attention's kernel against the reference: tiles of every width, blocks of keys, masks, special values."""

import numpy as np
import pytest
from support.check import Array
from support.gpu_simulate import launch
from support.noise import noise

from bslite import reference
from bslite.kernels.cuda import KERNELS
from bslite.plan.cuda.ops.attention import TILES, Tiles

pytestmark = pytest.mark.simulator

TINY = TILES[0]


def run(
    q: Array, k: Array, v: Array, cell: int = 1, tiles: Tiles = TINY, mask: Array | None = None,
    causal: bool = False, safe: bool = True,
) -> Array:  # fmt: skip
    """Of ``[heads, rows, depth]``; rows of y two floats further apart than they are long, filled with 7."""
    (heads, rows, depth), (_, keys, features) = q.shape, v.shape
    kind = 0 if mask is None else 2 if mask.dtype == np.int32 else 1
    numbers = dict.fromkeys(KERNELS["attention"].scalars, 0) | {
        "rows": rows, "keys": keys, "depth": depth // cell, "features": features,
        "row_tiles": -(-rows // tiles.tile[0]), "n1": 1, "n2": heads, "q_axes2": rows * depth // cell,
        "k_axes2": keys * depth // cell, "v_axes2": keys * features // cell,
        "y_axes2": rows * (features + 2) // cell,
        "q_row": depth // cell, "k_row": depth // cell, "v_row": features // cell,
        "y_row": (features + 2) // cell,
        "mask_row": keys, "mask_col": 1, "scale": depth**-0.5,
    }  # fmt: skip
    arrays = {
        "q": q, "k": k, "v": v, "y": np.full(heads * rows * (features + 2), 7, np.float32),
        "mask": mask if kind == 1 else np.zeros(1, np.float32),
        "flags": mask if kind == 2 else np.zeros(1, np.int32),
    }  # fmt: skip
    made = launch(
        KERNELS["attention_pairs" if cell == 2 else "attention"],
        (heads * numbers["row_tiles"], -(-features // tiles.width), 1), (tiles.threads, 1, 1),
        {**numbers, **arrays},
        tile=tiles.tile, width=tiles.width, mask_kind=kind, causal=int(causal), safe=int(safe),
    )["y"].reshape(heads, rows, features + 2)  # fmt: skip
    assert (made[..., features:] == 7).all()
    return made[..., :features]


def exact(
    q: Array, k: Array, v: Array, mask: Array | None = None, causal: bool = False, safe: bool = True
) -> Array:
    """The reference's answer, float64."""
    masks = [] if mask is None else [mask.astype(bool) if mask.dtype == np.int32 else mask]
    attrs = {"scale": None, "is_causal": causal, "grouped": False, "no_key": "zero" if safe else "nan"}
    attrs["dropped"] = False
    with np.errstate(all="ignore"):
        return reference.call("attention", [q, k, v, *masks], {}, attrs, np.float64)


def close(got: Array, want: Array) -> None:
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("tiles", TILES)
@pytest.mark.parametrize("cell", [1, 2])
def test_tiles(cell: int, tiles: Tiles) -> None:
    """More rows and keys than a tile has, of a depth and width that fill no slice and no tile."""
    rows, keys, _, _ = tiles.tile
    q, k, v = (
        noise(1, rows + 2, 6),
        noise(1, keys + 3, 6, seed=1),
        noise(1, keys + 3, tiles.width - 2, seed=2),
    )
    close(run(q, k, v, cell, tiles), exact(q, k, v))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", [None, "float", "bool"])
def test_masks_over_blocks_of_keys(kind: str | None, causal: bool) -> None:
    """Four blocks of keys, heads, more features than a block makes; a mask that hides whole blocks."""
    q, k, v = noise(2, 19, 10), noise(2, 53, 10, seed=1), noise(2, 53, 18, seed=2)
    mask = None
    if kind == "float":
        mask = noise(19, 53, seed=3)
        mask[:9, 16:40] = -np.inf
        mask[9:, :33] = -np.inf
    if kind == "bool":
        mask = (noise(19, 53, seed=3) > 0.5).astype(np.int32)
        mask[4:8, :48] = 0
    close(run(q, k, v, 2, mask=mask, causal=causal), exact(q, k, v, mask, causal))


@pytest.mark.parametrize("safe", [False, True])
def test_rows_without_a_key(safe: bool) -> None:
    q, k, v = noise(1, 5, 4), noise(1, 20, 4, seed=1), noise(1, 20, 3, seed=2)
    mask = np.ones((5, 20), np.int32)
    mask[2] = 0
    got = run(q, k, v, mask=mask, safe=safe)
    np.testing.assert_array_equal(got[0, 2], np.float32(0 if safe else np.nan))
    close(got, exact(q, k, v, mask, safe=safe))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["q", "k", "v"])
def test_special_values(value: float, where: str) -> None:
    """They spread as far as by the definition, and no further; in the last of three blocks of keys."""
    arrays = {"q": noise(1, 6, 4), "k": noise(1, 40, 4, seed=1), "v": noise(1, 40, 3, seed=2)}
    arrays[where][0, -1, 1] = value
    for causal in (False, True):
        close(run(**arrays, causal=causal), exact(**arrays, causal=causal))
