"""Attention as one launch: heads and batch are axes along the grid, walked by strides."""

from typing import NamedTuple

from bslite.errors import EngineError
from bslite.explore.gpu import GpuMachine
from bslite.kernels.contracts.cuda.attention import Attention, AttentionPairs, AttentionVariant
from bslite.passes import Layer
from bslite.plan.core.lowering import CUDA
from bslite.plan.core.views import View, size_of
from bslite.plan.cuda.gemm.product import in_pairs
from bslite.plan.cuda.launch import CudaBuilder, launch
from bslite.plan.shared.attention import OUTER, Matrices, copied, lower, scale_of


class Tiles(NamedTuple):
    """The rows and keys of a block and of a thread, and the columns of v that a block computes."""

    tile: tuple[int, int, int, int]
    width: int

    @property
    def threads(self) -> int:
        """The threads of a block."""
        rows, keys, thread_rows, thread_keys = self.tile
        return rows // thread_rows * (keys // thread_keys)


TILES = (
    Tiles((16, 16, 4, 4), 16),
    Tiles((64, 32, 8, 4), 32),
    Tiles((64, 64, 8, 4), 64),
    Tiles((32, 64, 4, 4), 128),
)


def choose_tiles(features: int, machine: GpuMachine) -> Tiles:
    """Return the narrowest tile that covers all features: a wider one computes columns that do not exist.
    Beyond the widest, blocks divide the features, and each computes the scores for itself.
    """
    fitting = [t for t in TILES if t.threads <= machine.block_threads]
    return next((t for t in fitting if t.width >= features), fitting[-1])


@CUDA.register("attention")
def lower_attention(b: CudaBuilder, layer: Layer) -> None:
    """Append one launch; operands whose heads and batch do not merge into three axes are copied first.

    Raises EngineError for a dropout, which `attention_in_parts` takes out.
    """
    if layer.node.attrs["dropped"]:
        raise EngineError(f"layer {layer.name!r}: no kernel for attention with a dropout")

    def straight(name: str) -> View:
        """Return the operand with contiguous rows and positive strides, copied if necessary."""
        view = b.values[name]
        right = (view.shape[-1] == 1 or view.strides[-1] == 1) and min(view.strides) >= 0
        return view if right else copied(b, view)

    def forwards(mask: View) -> View:
        return mask if min(mask.strides, default=0) >= 0 else copied(b, mask)

    lower(b, layer, straight, forwards, _step)


def _step(b: CudaBuilder, layer: Layer, matrices: Matrices) -> None:
    """Append the launch."""
    views, sizes, runs, mask_kind = matrices
    attrs = layer.node.attrs
    (rows, depth), (keys, features) = views["q"].shape[-2:], views["v"].shape[-2:]
    tiles = choose_tiles(features, b.machine)
    ours = [views[role] for role in "qkvy"]
    axes = [tuple(runs[role]) for role in "qkvy"]
    strides = [s for run, view in zip(axes, ours, strict=True) for s in (*run, view.strides[-2])]
    cell = 2 if in_pairs([v.start for v in ours], [depth, features, *strides]) else 1
    variant = AttentionVariant(
        tiles.tile, tiles.width, int(mask_kind), int(attrs["is_causal"]), int(attrs["no_key"] == "zero")
    )
    row_tiles = -(-rows // tiles.tile[0])
    mask = views.get("mask")
    flags = views["q"].start if mask is None else mask.start
    q, k, v, y = ours
    q_axes, k_axes, v_axes, y_axes = (tuple(s // cell for s in run) for run in axes)
    record = (AttentionPairs if cell == 2 else Attention)(
        q.start, k.start, v.start, flags, flags, y.start, rows, keys, depth // cell, features, row_tiles,
        sizes[1], sizes[2], q_axes, k_axes, v_axes, tuple(runs.get("mask", (0,) * OUTER)), y_axes,
        *(x.strides[-2] // cell for x in (q, k, v)), *((0, 0) if mask is None else mask.strides[-2:]),
        y.strides[-2] // cell, scale_of(layer.node, depth),
    )  # fmt: skip
    grid = (size_of(tuple(sizes)) * row_tiles, -(-features // tiles.width))
    launch(b, record, variant, grid, (tiles.threads,), [x for role, x in views.items() if role != "y"], [y])
