"""Items of layers on tiles share what a thread has split: the same bits however layers are cut."""

import pytest
from support.graphs import Graph
from support.noise import noise
from support.tiles import split_layers, tiles, with_tiles

import bslite
from bslite.engines.cpu.engine import prepare
from bslite.machine import Machine
from bslite.plan.cpu.on_tiles import split
from bslite.plan.cpu.on_tiles.items import Band
from bslite.plan.cpu.tiling import Items
from bslite.spec import ModelSpec

pytestmark = pytest.mark.usefixtures("tiles")
__all__ = ["tiles"]
SHAPE = (32, 9, 11)


def two_layers() -> ModelSpec:
    """A layer, and one that reads its results, of as many bands."""
    g = Graph()
    x = g.input("x", ("N", *SHAPE), (1, *SHAPE))
    y = g("conv2d", "first", x, weight=noise(96, 32, 3, 3), padding=1)
    return g.build(g("conv2d", "second", y, weight=noise(70, 96, 1, 1, seed=1)))


@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("bands", [1, 2, 4, 9])
def test_items_of_a_band_share_its_parts_and_others_do_not(
    bands: int, blocks: int, outer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = noise(3, *SHAPE)
    want = bslite.run(two_layers(), x, threads=1)

    def cut(_: Machine, of: Band) -> Items:
        lines, panels = -(-of.lines // bands), -(-of.panels // blocks)
        return Items(lines, -(-of.lines // lines), panels, -(-of.panels // panels), outer)

    monkeypatch.setattr(split, "tile_items", cut)
    spec = two_layers()
    for threads in (1, 2, 3):
        assert bslite.run(spec, x, threads=threads).tobytes() == want.tobytes()
    records = [s.record for s in prepare(spec, [x], 2, False).plan.steps if s.record.of_parts]
    assert {r.blocks for r in records} == {blocks}


def test_layers_of_a_stack_do_not_share_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their steps use the same memory, one after the other, and have bands of the same numbers."""
    with_tiles(monkeypatch.setattr, l2=1 << 20, l3=2 << 20)
    g = Graph()
    y = g.input("x", ("N", 64, 40, 40), (4, 64, 40, 40))
    for i in range(4):
        y = g("conv2d", f"layer{i}", y, weight=noise(64, 64, 1, 1, seed=i) / 8)
    spec, x = g.build(y), noise(4, 64, 40, 40)
    plan = prepare(spec, [x], 2, False).plan
    stacked = set().union(*(split_layers(inner) for step in plan.steps for inner in step.plans))
    assert len(stacked) > 1
    for threads in (1, 2):
        want = bslite.run(spec, x, threads=threads, layerwise=True)
        assert bslite.run(spec, x, threads=threads).tobytes() == want.tobytes()
