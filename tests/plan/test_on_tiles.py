"""Which layers are computed on tiles of bfloat16, and how they are cut, by price."""

import dataclasses
import itertools
import math
from typing import Any

import pytest
from support.cells import steps_of
from support.graphs import Graph, network
from support.noise import noise

from bslite import ModelSpec, Precision
from bslite.engines.cpu.detect import detect
from bslite.kernels.contracts.cpu.elementwise import Elementwise
from bslite.passes import simplify
from bslite.plan import Plan, build_plan
from bslite.plan.cpu.on_tiles.split import CYCLES, LARGE
from bslite.plan.cpu.tuning import Banding, Tuning
from bslite.spec import GraphBuilder

pytestmark = pytest.mark.usefixtures("images")


def planned(spec: ModelSpec, *shapes: tuple[int, ...], threads: int = 2) -> Plan[Any]:
    machine = dataclasses.replace(detect(threads), lanes=16, registers=32, tile_cycles=CYCLES, l2=2 << 20)
    return build_plan(simplify(spec), list(shapes), machine)


def kernels(plan: Plan[Any]) -> dict[str, str]:
    """The kernel of each layer, of those of stacks, too."""
    found = {name: step.kernel for step in plan.steps for name in step.layers if not step.plans}
    return found | {k: v for step in plan.steps for p in step.plans for k, v in kernels(p).items()}


def squeezed() -> ModelSpec:
    """Weights of channels by their average, as in a block that squeezes and excites."""
    g = Graph()
    x = y = g.input("x", ("N", 128, 14, 14), (1, 128, 14, 14))
    y = g("adaptive_avg_pool2d", "pool", x, output_size=(1, 1))
    y = g("conv2d", "down", y, weight=noise(64, 128, 1, 1))
    y = g("conv2d", "up", y, weight=noise(128, 64, 1, 1))
    return g.build(g("conv2d", "after", g("mul", "scaled", x, y), weight=noise(128, 128, 1, 1)))


@pytest.mark.parametrize("batch", [1, 16])
def test_the_only_pixel_of_an_image_stays_on_multiply_adds(batch: int) -> None:
    found = kernels(planned(squeezed(), (batch, 128, 14, 14)))
    assert (found["down"], found["up"], found["after"]) == ("conv", "conv", "split_conv")


def head(features: int, outputs: int, rank: int) -> ModelSpec:
    """A linear layer behind an input of so many axes."""
    g = GraphBuilder("head")
    between = (1,) * (rank - 2)
    x = g.input("x", ("N", *between, features))
    g.params["weight"] = noise(1, 1).repeat(outputs, 0).repeat(features, 1)
    return g.build(g.add("linear", "layer", x, params={"weight": "weight"}))


@pytest.mark.parametrize("batch", [1, 16])
def test_giant_layers_of_one_row_an_image_stay_on_multiply_adds(batch: int) -> None:
    features, outputs = 4096, LARGE // 4096 // 4
    one_row = planned(head(features, outputs, 2), (batch, features))
    assert kernels(one_row)["layer"] == "conv"
    smaller = planned(head(features, outputs - 1, 2), (batch, features))
    assert kernels(smaller)["layer"] == "split_conv"
    of_a_sequence = planned(head(features, outputs, 3), (batch, 1, features))
    assert kernels(of_a_sequence)["layer"] == "split_conv"


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize(("rank", "kernel"), [(4, "conv"), (3, "split_conv")])
def test_behind_convolutions_an_image_is_one_row(rank: int, kernel: str, batch: int) -> None:
    """A sequence of 4 steps is no image, though its first axis may be as long as the batch."""
    g = Graph()
    shape = (256, 4, 4) if rank == 4 else (4, 256)
    x = g.input("x", ("N", *shape), (1, *shape))
    if rank == 4:
        y = g("flatten", "rows", g("adaptive_avg_pool2d", "pool", x, output_size=(1, 1)))
    else:
        y = g("flatten", "rows", g("mean", "pool", x, axes=(1,), keepdim=True))
    y = g("relu", "act", g("linear", "first", y, weight=noise(256, 256)))
    y = g("linear", "second", y, weight=noise(256, 256))
    found = kernels(planned(g.build(y), (batch, *shape)))
    assert (found["first"], found["second"]) == (kernel, kernel)


@pytest.mark.parametrize("batch", [1, 2, 16])
def test_rows_that_a_constant_weighs_are_decided_alike_in_any_batch(batch: int) -> None:
    """The constant has one row, as a batch of one has."""
    g = Graph()
    x = g.input("x", ("N", 4096), (1, 4096))
    y = g("mul", "scaled", g("constant", "scale", value=noise(1, 4096)), x)
    plan = planned(g.build(g("linear", "layer", y, weight=noise(LARGE // 4096 // 4, 4096))), (batch, 4096))
    assert kernels(plan)["layer"] == "split_conv"


def test_linear_layers_on_pixels_are_no_single_rows() -> None:
    """As in a Swin transformer, whose images lie channels-last."""
    g = Graph()
    x = g.input("x", ("N", 14, 14, 256), (1, 14, 14, 256))
    plan = planned(g.build(g("linear", "layer", x, weight=noise(256, 256))), (1, 14, 14, 256))
    assert kernels(plan)["layer"] == "split_conv"


@pytest.mark.parametrize(("recurrent", "kernel"), [(False, "conv"), (True, "split_conv")])
def test_steps_of_a_sequence_are_decided_as_the_whole(recurrent: bool, kernel: str) -> None:
    """A model with a recurrent layer may be run step by step, and a step must have the bits of the whole."""
    g = Graph()
    x = g.input("x", ("N", 64), (1, 64))
    made = [g("linear", "layer", x, weight=noise(LARGE // 64 // 4, 64))]
    if recurrent:
        steps = g.input("steps", ("N", 1, 64), (1, 1, 64))
        made.append(g("lstm", "cell", steps, weight_ih=noise(4 * 64, 64), weight_hh=noise(4 * 64, 64)))
    plan = planned(g.build(*made), *[(1, 64), (1, 1, 64)][: len(made)])
    assert kernels(plan)["layer"] == kernel


@pytest.mark.parametrize(("side", "stride"), [(7, 2), (9, 4)])
def test_a_row_of_a_window_on_a_picture_is_a_pixel(side: int, stride: int) -> None:
    g = Graph()
    x = g.input("x", ("N", 3, 112, 112), (1, 3, 112, 112))
    weight = noise(256, 3, side, side)
    y = g("conv2d", "layer", x, weight=weight, stride=stride, padding=side // 2)
    plan = planned(g.build(y), (1, 3, 112, 112))
    (record,) = (s.record for s in plan.steps if s.kernel == "split_conv")
    assert (record.depth, record.steps) == (3 * side, side * math.ceil(3 * side / 32))


def test_threads_split_pixels_once_for_many_blocks_of_panels() -> None:
    """So blocks may be small, and no thread waits long for the last one; bands would read more weights."""
    g = Graph()
    x = g.input("x", ("N", 256, 14, 14), (1, 256, 14, 14))
    y = g("conv2d", "layer", x, weight=noise(1024, 256, 1, 1))
    plan = planned(g.build(y), (1, 256, 14, 14), threads=2)
    (record,) = (s.record for s in plan.steps if s.kernel == "split_conv")
    assert record.bands == 1
    assert record.blocks >= 8


@pytest.mark.parametrize(("threads", "tiles"), [(1, 13), (2, 7), (3, 5), (4, 4)])
def test_lines_are_cut_so_that_threads_have_even_shares(threads: int, tiles: int) -> None:
    """Of 196 pixels in lines of 32, one of two threads would have 128."""
    g = Graph()
    x = g.input("x", ("N", 256, 14, 14), (1, 256, 14, 14))
    plan = planned(
        g.build(g("conv2d", "layer", x, weight=noise(256, 256, 1, 1))), (1, 256, 14, 14), threads=threads
    )
    (record,) = (s.record for s in plan.steps if s.kernel == "split_conv")
    largest = -(-record.lines // threads) * record.pixels
    assert -(-min(196, largest) // 16) == tiles
    assert record.lines * record.pixels - record.short == 196


def test_long_sums_are_split_chunk_by_chunk() -> None:
    """Parts of whole rows would not stay in L2; few rows are split at once."""
    for rows, by_chunks in ((197, 1), (64, 1), (48, 0)):
        g = Graph()
        x = g.input("x", ("N", rows, 3072), (1, rows, 3072))
        plan = planned(g.build(g("linear", "layer", x, weight=noise(768, 3072))), (1, rows, 3072))
        (record,) = (s.record for s in plan.steps if s.kernel == "split_conv")
        assert record.by_chunks == by_chunks
        if by_chunks:
            assert record.pixel * rows < 2 << 20
            assert record.ahead == record.steps * record.b_parts * 2048  # the same chunk of the next panel


def test_both_threads_do_not_read_all_weights() -> None:
    """Where weights are more than L2 keeps, threads share out channels, not lines."""
    g = Graph()
    x = g.input("x", ("N", 512, 7, 7), (1, 512, 7, 7))
    y = g("conv2d", "layer", x, weight=noise(512, 512, 3, 3), padding=1)
    (record,) = (s.record for s in planned(g.build(y), (1, 512, 7, 7)).steps if s.kernel == "split_conv")
    assert (record.bands, record.blocks > 1) == (1, True)


def test_parts_that_l2_hardly_keeps_are_taken_in_bands() -> None:
    """1.2 MB of parts would come from beyond L2 for each panel: each thread has half of the pixels."""
    g = Graph()
    x = g.input("x", ("N", 1024, 14, 14), (1, 1024, 14, 14))
    plan = planned(g.build(g("conv2d", "layer", x, weight=noise(256, 1024, 1, 1))), (1, 1024, 14, 14))
    (record,) = (s.record for s in plan.steps if s.kernel == "split_conv")
    assert record.bands == 2
    assert record.pixel * record.band_lines * record.pixels < 0.35 * (2 << 20)


@pytest.mark.parametrize("layers", [1, 8], ids=["layer by layer", "in stacks"])
def test_norms_before_pixels_are_no_steps(layers: int) -> None:
    """Of DenseNet's, those before filters of one pixel; no stack begins between the two. Of transitions the
    pool comes first, which reads the norm.
    """
    machine = dataclasses.replace(detect(2), lanes=16, registers=32, tile_cycles=CYCLES, l2=2 << 20)
    spec, tuning = simplify(network("densenet121", size=224)), Tuning(banding=Banding(longest=layers))
    plan = build_plan(spec, [(1, 3, 224, 224)], machine, tuning=tuning)
    steps = steps_of(plan)
    own = {n for s in steps if isinstance(s.record, Elementwise) for n in s.layers}
    joined = [s for s in steps if s.kernel == "split_conv" and s.record.prologue.scaled]
    assert {n for n in own if "norm1" in n} == set()
    assert {n for n in own if "transition" in n} == {
        f"features.transition{i}.{part}" for i in (1, 2, 3) for part in ("norm", "relu")
    }
    assert len({s.layers for s in joined}) > 50


@pytest.mark.parametrize(
    ("size", "taps", "padding", "stride", "pitch"),
    [
        (14, (3, 3), 1, 1, 15),
        (17, (1, 7), (0, 3), 1, 20),
        (17, (7, 1), (3, 0), 1, 17),
        (14, (3, 3), (1, 0, 1, 2), 1, 16),  # all zeros at one end
        (14, (3, 5), (1, 1, 1, 3), 1, 17),
        (15, (3, 3), 1, 2, 9),  # of two phases, nothing
        (14, (3, 3), 0, 1, 14),
    ],
)
def test_zeros_that_end_a_line_begin_the_next(
    size: int, taps: tuple[int, int], padding: Any, stride: int, pitch: int
) -> None:
    """So fewer rows of tiles are nobody's outputs."""
    g = Graph()
    x = g.input("x", ("N", 64, size, size), (1, 64, size, size))
    y = g("conv2d", "layer", x, weight=noise(64, 64, *taps), padding=padding, stride=stride)
    (record,) = (s.record for s in planned(g.build(y), (1, 64, size, size)).steps if s.kernel == "split_conv")
    assert record.pitch == pitch


def test_bands_of_windows_are_priced_with_the_rows_that_two_of_them_read() -> None:
    """A line of 224 pixels fills 7 tiles of 32, but a band of one line splits three rows for it."""
    g = Graph()
    x = g.input("x", ("N", 64, 224, 224), (1, 64, 224, 224))
    plan = planned(g.build(g("conv2d", "layer", x, weight=noise(64, 64, 3, 3), padding=1)), (1, 64, 224, 224))
    (record,) = (s.record for s in plan.steps if s.kernel == "split_conv")
    assert record.band_lines >= 4


@pytest.mark.parametrize("taps", [2, 3, 9])
def test_a_picture_is_rounded_for_tiles_alone(taps: int) -> None:
    """Its layer is asked for by the sum that it has, of pixels of four numbers."""
    machine = dataclasses.replace(detect(2), lanes=16, registers=32, tile_cycles=CYCLES, l2=2 << 20)
    tuning, found = Tuning(precision=Precision.BFLOAT16), set()
    for outputs, channels in itertools.product((1, 8, 16, 33), (1, 3, 4)):
        for size in (taps, taps + 3, 40):
            g = Graph()
            x = g.input("x", (1, channels, size, size))
            spec = g.build(g("conv2d", "layer", x, weight=noise(outputs, channels, taps, taps)))
            plan = build_plan(simplify(spec), [(1, channels, size, size)], machine, tuning=tuning)
            made = {step.kernel for step in plan.steps}
            found.add("picture" in made)
            assert ("picture" in made) == bool(made & {"split_conv"}), (outputs, channels, size)
    assert found == ({True} if taps > 3 else {False, True})
