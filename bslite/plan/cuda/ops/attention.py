"""Attention as one launch: heads and batch are axes along the grid, walked by strides."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bslite.explore.gpu import GpuMachine
from bslite.passes import Layer
from bslite.plan.core.loops import merged_axes, padded
from bslite.plan.core.lowering import CUDA
from bslite.plan.core.views import NO_HALO, View, size_of
from bslite.plan.cuda.gemm.product import in_pairs
from bslite.plan.cuda.launch import CudaBuilder, untyped
from bslite.plan.cuda.ops.matmul import copied

OUTER = 3  # axes around the matrices that the kernel walks


class Tiles(NamedTuple):
    """Rows and keys of a block and of a thread, and columns of v that a block makes."""

    tile: tuple[int, int, int, int]
    width: int

    @property
    def threads(self) -> int:
        """Of a block."""
        rows, keys, thread_rows, thread_keys = self.tile
        return rows // thread_rows * (keys // thread_keys)


TILES = (
    Tiles((16, 16, 4, 4), 16),
    Tiles((64, 32, 8, 4), 32),
    Tiles((64, 64, 8, 4), 64),
    Tiles((32, 64, 4, 4), 128),
)


def choose_tiles(features: int, machine: GpuMachine) -> Tiles:
    """The narrowest that makes all features at once: a wider one computes columns that are not there. Beyond
    the widest, blocks share the features out, and each computes the scores for itself.
    """
    fitting = [t for t in TILES if t.threads <= machine.block_threads]
    return next((t for t in fitting if t.width >= features), fitting[-1])


@CUDA.register("attention")
def lower_attention(b: CudaBuilder, layer: Layer) -> None:
    """One launch; where heads and batch do not merge into three axes, operands are copied first."""
    node, shape = layer.node, b.shapes[layer.name]
    names, batch = node.inputs, shape[:-2]
    q, k, v = (_straight(b, b.values[name]) for name in names[:3])
    keys = k.shape[-2]
    kind = {"float32": 1, "bool": 2}[b.dtypes[names[3]]] if len(names) == 4 else 0
    groups = q.shape[-3] // k.shape[-3] if node.attrs["grouped"] else 1
    own = (*batch[:-1], batch[-1] // groups) if groups > 1 else batch  # the axes of k and v
    y, home = b.writable(layer.name, len(shape) - 1)
    views = {"q": q.broadcast((*batch, *q.shape[-2:])), "k": k.broadcast((*own, *k.shape[-2:])),
             "v": v.broadcast((*own, *v.shape[-2:]))}  # fmt: skip
    if kind:
        mask = b.values[names[3]]
        mask = mask if min(mask.strides, default=0) >= 0 else copied(b, mask)
        views["mask"] = mask.broadcast((*batch, shape[-2], keys))
    views["y"] = y
    if groups > 1:
        views = {role: _grouped(x, groups, repeat=role in "kv") for role, x in views.items()}
    merged = _merged(views)
    if merged is None:
        views = {role: copied(b, x) for role, x in views.items() if role != "y"}
        y = b.fresh(shape, len(shape) - 1, NO_HALO)
        views["y"] = _grouped(y, groups, repeat=False) if groups > 1 else y
        merged = _merged(views)
        assert merged is not None
    _step(b, layer, kind, views, *merged)
    if y is not home:
        b.copy(y, home)


def _straight(b: CudaBuilder, view: View) -> View:
    """With contiguous rows that lie forwards; a copy where they do not."""
    right = (view.shape[-1] == 1 or view.strides[-1] == 1) and min(view.strides) >= 0
    return view if right else copied(b, view)


def _grouped(view: View, groups: int, repeat: bool) -> View:
    """The axis of heads cut into heads of k and v, and ``groups`` of q's for each; or those of k and v
    repeated so often.
    """
    (heads, *matrix), (step, *strides) = view.shape[-3:], view.strides[-3:]
    cut, steps = (
        ((heads, groups), (step, 0)) if repeat else ((heads // groups, groups), (step * groups, step))
    )
    shape, lead = (*view.shape[:-3], *cut, *matrix), view.strides[:-3]
    return View(view.buffer, view.offset, shape, (*lead, *steps, *strides))


def _merged(views: Mapping[str, View]) -> tuple[list[int], dict[str, list[int]]] | None:
    """The axes around the matrices as three, with each view's strides; None where they are more."""
    shape = views["y"].shape[:-2]
    sizes, runs = merged_axes(shape, [x.strides[:-2] for x in views.values()], by=len(views) - 1)
    if len(sizes) > OUTER:
        return None
    sizes, runs = padded(sizes, runs, OUTER)
    return sizes, dict(zip(views, runs, strict=True))


def _step(
    b: CudaBuilder, layer: Layer, kind: int, views: Mapping[str, View], sizes: Sequence[int],
    runs: Mapping[str, Sequence[int]],
) -> None:  # fmt: skip
    """Append the launch for views of one batch, whose axes are of these ``sizes`` and strides."""
    attrs = layer.node.attrs
    (rows, depth), (keys, features) = views["q"].shape[-2:], views["v"].shape[-2:]
    tiles = choose_tiles(features, b.machine)
    ours = [role for role in views if role != "mask"]
    places = {role: (x.buffer, x.offset) for role, x in views.items()}
    strides = [s for role in ours for s in (*runs[role], views[role].strides[-2])]
    cell = 2 if in_pairs(b, [places[role] for role in ours], [depth, features, *strides]) else 1
    variant = {
        "tile": tiles.tile, "width": tiles.width, "mask_kind": kind, "causal": int(attrs["is_causal"]),
        "safe": int(attrs["no_key"] == "zero"),
    }  # fmt: skip
    row_tiles = -(-rows // tiles.tile[0])
    scalars: dict[str, float] = {
        "rows": rows, "keys": keys, "depth": depth // cell, "features": features, "row_tiles": row_tiles,
        "n1": sizes[1], "n2": sizes[2],
        "scale": float(1 / math.sqrt(depth) if attrs["scale"] is None else attrs["scale"]),
        "mask_row": views["mask"].strides[-2] if kind else 0,
        "mask_col": views["mask"].strides[-1] if kind else 0,
    }  # fmt: skip
    scalars |= {f"mask{i}": s for i, s in enumerate(runs.get("mask", [0] * OUTER))}
    for role in ours:
        scalars |= {f"{role}{i}": s // cell for i, s in enumerate(runs[role])}
        scalars[f"{role}_row"] = views[role].strides[-2] // cell
    operands = {role: places[role] for role in ours}
    operands["mask"], operands["flags"] = (places.get("mask", places["q"]),) * 2
    untyped(
        b, "attention_pairs" if cell == 2 else "attention", variant,
        (size_of(tuple(sizes)) * row_tiles, -(-features // tiles.width)), (tiles.threads,), scalars, operands,
        [x for role, x in views.items() if role != "y"], [views["y"]],
    )  # fmt: skip
