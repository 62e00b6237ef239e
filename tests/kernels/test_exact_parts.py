"""Numbers without exact parts are noticed where tiles split them, by their bits: the run is done again by
multiply-adds. The same numbers in weights that are values.
"""

import numpy as np
import pytest
from support.graphs import Graph
from support.noise import noise
from support.tiles import tiles

import bslite
from bslite.spec import ModelSpec

pytestmark = pytest.mark.usefixtures("tiles")
__all__ = ["tiles"]
NOT_FINITE = [
    0x7FC00000, 0x7F800001, 0x7FFF8000, 0x7FFFFFFF, 0xFFFFFFFF, 0xFFFF8001,  # NaN; rounding empties some
    0x7F800000, 0xFF800000, 0x7F7F8000, 0xFF7FFFFF,  # infinities, and what rounds to them
]  # fmt: skip
TINY = [1, 0x80000001, 0x7FFF, 0x8000, 0xFFFF, 0x00800000, 0x0D7F0000, 0x8D7F7FFF]
EXACT = [0, 0x80000000, 0x0D800000, 0x8D800001, 0x7F7F7FFF, 0xFF7F7FFF]


def of_pixels() -> ModelSpec:
    g = Graph()
    x = g.input("x", (1, 40, 9, 11))
    return g.build(g("conv2d", "layer", x, weight=noise(64, 40, 1, 1, seed=1)))


def of_weights() -> ModelSpec:
    g = Graph()
    a, b = g.input("a", (2, 48, 64)), g.input("b", (2, 64, 72))
    return g.build(g("matmul", "layer", a, b))


@pytest.mark.parametrize("precision", ["float32", "bfloat16_3x", "bfloat16"])
@pytest.mark.parametrize("bits", [*NOT_FINITE, *TINY, *EXACT], ids=hex)
@pytest.mark.parametrize("where", ["pixels", "weights"])
def test_one_number_among_ordinary_ones(where: str, bits: int, precision: str) -> None:
    """Other outputs have the bits of multiply-adds if, and only if, the run was done again."""
    spec = of_pixels() if where == "pixels" else of_weights()
    given = [noise(*i.shape, seed=n) for n, i in enumerate(spec.inputs)]
    given[-1].view(np.uint32).flat[3 * 11 + 5] = bits
    made, peer = (bslite.run(spec, given, threads=1, precision=p) for p in (precision, "ieee"))
    noticed = bits in NOT_FINITE or (bits in TINY and precision != "bfloat16")
    assert np.array_equal(made, peer, equal_nan=True) == noticed
