"""How layers on tiles are cut into items: what the price knows of L2, of overlap and of results."""

import dataclasses

import pytest
from support.graphs import Graph
from support.noise import noise

from bslite.engines.cpu.detect import detect
from bslite.kernels.contracts.cpu.tiles import SplitConv
from bslite.machine import Machine
from bslite.passes import simplify
from bslite.plan import build_plan
from bslite.plan.cpu.on_tiles.items import Band, leaving, tile_items
from bslite.plan.cpu.on_tiles.split import CYCLES
from bslite.plan.cpu.tiling import Items
from bslite.plan.cpu.tuning import Banding, Tuning

L2 = 2 << 20


def machine(threads: int = 2, **other: float) -> Machine:
    rates = {"l2_bytes_per_cycle": 32.0, "l3_bytes_per_cycle": 8.0, "memory_bytes_per_cycle": 4.0} | other
    return dataclasses.replace(
        detect(threads), lanes=16, registers=32, tile_cycles=CYCLES, l2=L2, l3=64 << 20, **rates
    )


def record(batch: int, into: int, channels: int, size: int, taps: int = 1) -> SplitConv:
    """Of one convolution to ``channels``, not in a stack."""
    g = Graph()
    x = g.input("x", ("N", into, size, size), (batch, into, size, size))
    y = g("conv2d", "layer", x, weight=noise(channels, into, taps, taps), padding=taps // 2)
    tuning = Tuning(banding=Banding(longest=1))
    plan = build_plan(simplify(g.build(y)), [(batch, into, size, size)], machine(), tuning=tuning)
    (found,) = (s.record for s in plan.steps if isinstance(s.record, SplitConv))
    return found


def test_a_thread_splits_its_pixels_once() -> None:
    """By two blocks of panels, each of all bands, it would split 12.8 MB twice: 4.5 ms for 3.5 on a Xeon."""
    r = record(16, 1024, 256, 14)
    assert r.blocks == 1 or not r.blocks_outer


@pytest.mark.parametrize(("into", "channels", "far"), [(64, 64, 0), (512, 512, 1)])
def test_weights_are_fetched_for_each_band_where_they_leave_l2(into: int, channels: int, far: int) -> None:
    assert record(4, into, channels, 28, 3).far == far


def band(**other: float) -> Band:
    """1024 to 256 channels of 14 x 14 pixels, of 16 images."""
    size = {"images": 16, "lines": 14, "pixels": 14, "pitch": 14, "panels": 8, "added": False, "step": 1}
    cycles = {"halo": 0, "block": 16896.0, "store": 10.0, "split": 8601.6}
    some = {"read": 57344, "kept": 86016, "sums": 0, "weights": 1572864, "made": 200704}
    return Band(**size | cycles | some | other)  # type: ignore[arg-type]


def test_what_leaves_l2_grows_with_what_is_met_in_between() -> None:
    whole, half, outer = Items(14, 1, 8, 1, False), Items(7, 2, 8, 1, False), Items(7, 2, 1, 8, True)
    shares = [leaving(machine(), band(), cut) for cut in (whole, half, outer)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == 1.0
    assert leaving(machine(), band(weights=1 << 16, kept=1024), outer) == 0.0


def test_results_that_fill_caches_are_made_by_few_rows_at_a_time() -> None:
    """Behind 64 channels: 51 MB of 256, a kilobyte a pixel, added to others."""
    of = band(
        images=1, lines=1568, pixels=32, pitch=32, added=True, block=1056.0, split=1228.8, read=8192,
        kept=12288, weights=98304, made=51380224,
    )  # fmt: skip
    small = of._replace(images=1, lines=49, made=1605632)
    assert tile_items(machine(), of).band_lines < 12 <= tile_items(machine(threads=1), small).band_lines


def test_rows_are_not_cut_where_threads_share_out_channels() -> None:
    """128 rows of 768 channels to 768, in one part: weights would come from L2 for each band."""
    of = band(
        images=1, lines=4, pixels=32, pitch=32, panels=24, block=96 * CYCLES, split=4915.2, read=98304,
        kept=49152, weights=1179648, made=393216,
    )  # fmt: skip
    assert tile_items(machine(l3_bytes_per_cycle=10.0), of).bands == 1


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_bands_and_blocks_cover_a_layer(threads: int) -> None:
    for lines, panels, images in ((1, 1, 1), (7, 3, 2), (14, 8, 16), (33, 5, 1)):
        cut = tile_items(machine(threads), band(lines=lines, panels=panels, images=images))
        assert (cut.bands - 1) * cut.band_lines < lines <= cut.bands * cut.band_lines
        assert (cut.blocks - 1) * cut.block_panels < panels <= cut.blocks * cut.block_panels
