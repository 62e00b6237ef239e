"""Pools: the stack kernel computes them, or, where it has no code, a kernel with one element per thread."""

import itertools
from collections.abc import Sequence

from bslite.kernels.contracts.cuda.windows import Pool, PoolVariant, WholePool, WholePoolVariant
from bslite.kernels.contracts.record import Operand
from bslite.passes import Layer
from bslite.plan.core.lowering import CUDA
from bslite.plan.core.views import View, size_of
from bslite.plan.core.windows import volume
from bslite.plan.cuda.depthwise import places_of
from bslite.plan.cuda.launch import CudaBuilder, launch
from bslite.plan.cuda.stack.steps import as_stack, small
from bslite.plan.shared.activation import activation, affine
from bslite.plan.shared.spans import Span, adaptive_spans, spans_of

THREADS = 128
#: A block's channels in a pool over the whole image, and the threads that share a channel's pixels: where
#: there are blocks for all SMs, and where there are not, for so many pixels at least.
MANY_BLOCKS, FEW_BLOCKS = (32, 8), {2048: (8, 64), 512: (8, 32)}


@CUDA.register("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d")
def lower_pool(b: CudaBuilder, layer: Layer) -> None:
    """Append a pool with sliding windows."""
    if as_stack(b, layer):
        return
    name = layer.node.inputs[0]
    spans, dilation = spans_of(layer.node, b.shapes[name][2:], b.shapes[layer.name][2:])
    pool_step(b, _largest(layer), b.read(name), b.write(layer.name), spans, dilation, layer)


@CUDA.register(*(f"adaptive_{kind}_pool{axes}d" for kind in ("avg", "max") for axes in (1, 2, 3)))
def lower_adaptive_pool(b: CudaBuilder, layer: Layer) -> None:
    """Append a pool whose windows divide the image."""
    sizes = b.shapes[layer.node.inputs[0]][2:]
    made = b.shapes[layer.name][2:]
    spans = [adaptive_spans(h, p) for h, p in zip(sizes, made, strict=True)]
    x, axes = b.read(layer.node.inputs[0]), len(sizes)
    if size_of(made) == 1 and whole_step(b, layer, x):
        return
    pool_step(b, _largest(layer), x, b.write(layer.name), spans, (1,) * axes, layer)


def whole_step(b: CudaBuilder, layer: Layer, x: View) -> bool:
    """Append a pool over the whole image if its pixels are evenly spaced: a block takes some channels of an
    image. Returns whether it did.
    """
    n, c, *sizes = x.shape
    pixels = [(size, step) for size, step in zip(sizes, x.strides[2:], strict=True) if size > 1]
    even = all(p[1] == q[0] * q[1] for p, q in itertools.pairwise(pixels))
    if not even:
        return False
    y = b.write(layer.name)
    norm = affine(b, layer.affine)
    name, first, second = activation(layer.activation)
    count, (lanes, sharing) = size_of(tuple(sizes)), MANY_BLOCKS
    if -(-c // lanes) * n < b.machine.sms:
        lanes, sharing = next((few for least, few in FEW_BLOCKS.items() if count >= least), MANY_BLOCKS)
    lanes = max(1, min(lanes, b.machine.block_threads // sharing))
    sharing = min(sharing, b.machine.block_threads)
    groups = -(-c // lanes)
    variant = WholePoolVariant(_largest(layer), int(norm is not None), name, lanes, sharing)
    record = WholePool(
        x.start, y.start, *(norm or (x.start, x.start)), count, c, groups,
        x_image=x.strides[0], x_pixel=pixels[-1][1] if pixels else 0, x_channel=x.strides[1],
        y_image=y.strides[0], y_channel=y.strides[1], a=first, b=second,
    )  # fmt: skip
    launch(b, record, variant, [groups * n], [lanes, sharing], [x], [y])
    return True


def _largest(layer: Layer) -> int:
    return int("max" in layer.node.op)


def pool_step(
    b: CudaBuilder,
    largest: int,
    x: View,
    y: View,
    spans: Sequence[Sequence[Span]],
    dilation: Sequence[int],
    layer: Layer | None = None,
) -> None:
    """Append a pool of x to y; ``spans`` are the windows along each axis. The store applies what ``layer``
    has fused.
    """
    missing = 3 - len(spans)
    whole = [*[[Span(0, 1, 1)]] * missing, *spans]
    _, deep, tall, wide = (1, *[1] * missing, *dilation)
    source, target = volume(x), volume(y)
    small(b, source, target)
    _, c, planes, rows, cols = target.shape
    xp, xr, xx = source.strides[2:]
    table = b.const("cells", values=[v for axis in whole for s in axis for v in s])
    norm = affine(b, layer.affine if layer else None)
    name, first, second = activation(layer.activation if layer else None)
    threads = min(THREADS, b.machine.block_threads)
    variant = PoolVariant(largest, int(norm is not None), name, threads)
    count = size_of(target.shape)
    record = Pool(
        x.start, y.start, Operand(table, 0), *(norm or (x.start, x.start)), count, c, planes, rows, cols,
        places_of(source, target), down=deep * xp, tall=tall * xr, wide=wide * xx, a=first, b=second,
    )  # fmt: skip
    launch(b, record, variant, [-(-count // threads)], [threads], [x], [y])
