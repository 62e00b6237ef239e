"""Convolutions and transposed convolutions on the GPU's batch-reduce GEMM: a row is a pixel of an image.

Images are channels-last; the filters' weights are ``[K, taps, C/groups]``, which is channels-last, too. Where
windows are one pixel and pixels are evenly spaced, A is a plain matrix. Elsewhere the kernel computes the
places of its elements and tests bounds: no image is padded and no patch copied. Each group has blocks of its
own along the grid.
"""

from collections.abc import Sequence
from dataclasses import replace

from bslite.kernels.contracts.cuda.gemm import Matrices, Outputs, Windows
from bslite.kernels.contracts.record import Operand
from bslite.passes import Layer
from bslite.plan.core.lowering import CUDA
from bslite.plan.core.views import NO_HALO, View
from bslite.plan.core.windows import Window, made_by, volume, windows_of
from bslite.plan.cuda.depthwise import is_depthwise, lower_depthwise
from bslite.plan.cuda.gemm.product import Before, Product, append
from bslite.plan.cuda.launch import CudaBuilder
from bslite.plan.cuda.library import LibraryCall
from bslite.plan.shared.conv import Filters, filters_of, residual_of


@CUDA.register("conv1d", "conv2d", "conv3d")
def lower_conv(b: CudaBuilder, layer: Layer) -> None:
    """Append a convolution, dense or grouped, with residual and activation in its store."""
    if is_depthwise(b, layer):
        lower_depthwise(b, layer)
        return
    convolution(b, layer, layer.node.inputs[0])


def convolution(
    b: CudaBuilder, layer: Layer, value: str, before: Before | None = None, beside: Sequence[View] = ()
) -> None:
    """Append a dense or grouped convolution of ``value``: the layer's input or, with a prologue, the
    prologue's input. ``beside`` is the prologue's other operand.
    """
    node = layer.node
    (window,) = windows_of(node, b.spec.param_shapes(node), b.shapes, layer.name)
    weights = b.const("filters", node.params["weight"])
    x = forwards(b, b.read(value))
    y, residual = b.write(layer.name), residual_of(b, layer)
    _convolve(
        b, layer, x, y, residual, window, filters_of(b, layer), weights,
        None if before else library_of(layer, x, y, residual), before, beside,
    )  # fmt: skip


@CUDA.register("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def lower_conv_transpose(b: CudaBuilder, layer: Layer) -> None:
    """Append a convolution for every place within a stride, as on the CPU; no inserted zero is multiplied."""
    node = layer.node
    filters = filters_of(b, layer)
    x = forwards(b, b.read(node.inputs[0]))
    y, residual = b.write(layer.name), residual_of(b, layer)
    for window in windows_of(node, b.spec.param_shapes(node), b.shapes, layer.name):
        weights = b.const(
            "transposed_filters", node.params["weight"], groups=filters.groups,
            first=tuple(a.first_tap for a in window), step=tuple(a.tap_step for a in window),
            taps=tuple(a.taps for a in window),
        )  # fmt: skip
        _convolve(b, layer, x, y, residual, window, filters, weights)


def _convolve(
    b: CudaBuilder,
    layer: Layer,
    x: View,
    y: View,
    residual: View | None,
    window: Window,
    filters: Filters,
    weights: str,
    library: LibraryCall | None = None,
    before: Before | None = None,
    beside: Sequence[View] = (),
) -> None:
    """Append the launches of one convolution."""
    y = made_by(y, window)
    residual = None if residual is None else made_by(residual, window)
    n, _, d, p, q = volume(y).shape
    taps = window.depth.taps * window.rows.taps * window.cols.taps
    terms = 0 if window.empty else filters.group_depth * taps
    along, x_row = evenly(x), volume(x).strides[4] if volume(x).shape[4] > 1 else 0
    windows, axes = Windows(), 0
    if _plain(window) and along is not None and not window.empty:
        x_row = along
    else:
        windows, axes = _windows(x, window, filters.group_depth), 2 + int(_deep(x, y, window))
        x_row = volume(x).strides[4]
    made = [v for v in (y, residual) if v is not None]
    scatter = any(evenly(v) is None for v in made)
    matrices, outputs = Matrices(), outputs_of(y, residual, scatter, (d, p, q))
    groups = filters.groups
    if groups > 1:
        matrices = Matrices(
            inner=groups, x_inner=filters.group_depth, w_inner=filters.group_channels * terms,
            bias_inner=filters.group_channels,
        )  # fmt: skip
        outputs = replace(outputs, y_inner=filters.group_channels)
    bias = layer.node.params.get("bias")
    append(b, layer, Product(
        n * d * p * q, filters.group_channels, terms, x.start, Operand(weights, 0), y.start, x_row, terms,
        outputs, [x, *made[1:], *beside], [y], batch=groups, matrices=matrices, windows=windows, axes=axes,
        scatter=int(scatter), residual=None if residual is None else residual.start,
        bias=b.const("param", bias) if bias else None, before=before, library=library,
    ))  # fmt: skip


def outputs_of(y: View, residual: View | None, scatter: bool, sizes: tuple[int, int, int]) -> Outputs:
    """Return the strides of pixels in y and in the residual; ``sizes``: planes, lines, pixels of a line."""
    strides: dict[str, int] = {}
    for name, view in (("y", y), ("r", residual)):
        if view is not None and scatter:
            image, _, plane, line, pixel = volume(view).strides
            strides |= {
                f"{name}_image": image, f"{name}_plane": plane, f"{name}_line": line, f"{name}_row": pixel,
            }  # fmt: skip
        elif view is not None:
            strides[f"{name}_row"] = evenly(view) or 0
    planes, lines, pixels = sizes
    return Outputs(planes=planes, lines=lines, pixels=pixels, **strides)


def _windows(x: View, window: Window, depth: int) -> Windows:
    """Return the strides and steps of the windows in x."""
    image, _, plane, line, _ = volume(x).strides
    numbers: dict[str, int] = {}
    for axis, along in zip("dhw", window, strict=True):
        numbers |= {
            f"start_{axis}": along.start, f"step_{axis}": along.stride, f"have_{axis}": along.have,
            f"next_{axis}": along.dilation,
        }  # fmt: skip
    return Windows(
        image, plane, line, taps_h=window.rows.taps, taps_w=window.cols.taps, depth=depth, **numbers
    )


def _deep(x: View, y: View, window: Window) -> bool:
    """Return whether windows move along planes."""
    return volume(x).shape[2] > 1 or volume(y).shape[2] > 1 or window.depth.taps > 1


def _plain(window: Window) -> bool:
    """Return whether every output depends only on the one pixel in its place."""
    return all((a.taps, a.stride, a.start) == (1, 1, 0) and a.after == 0 and a.have == a.made for a in window)


def evenly(view: View) -> int | None:
    """Return the stride of pixels if those of all lines, planes and images are evenly spaced, else None."""
    shape, strides = volume(view).shape, volume(view).strides
    step, count = 0, 1
    for axis in (4, 3, 2, 0):
        if shape[axis] == 1:
            continue
        if count == 1:
            step = strides[axis]
        elif strides[axis] != step * count:
            return None
        count *= shape[axis]
    return step if step >= 0 else None


def forwards(b: CudaBuilder, view: View) -> View:
    """Return ``view``, or a copy without negative strides: kernels count upwards from the first element."""
    if all(s >= 0 for s in view.strides):
        return view
    fresh = b.fresh(view.shape, 1, NO_HALO)
    b.copy(view, fresh)
    return fresh


def library_of(layer: Layer, x: View, y: View, residual: View | None) -> LibraryCall | None:
    """Return the same convolution as a torch call; None where it pads the two sides differently."""
    attrs = layer.node.attrs
    axes = len(x.shape) - 2
    padding = attrs["padding"][:axes]
    if padding != attrs["padding"][axes:]:
        return None
    return LibraryCall(
        layer.node.op, x, y, residual, attrs["stride"], padding, attrs["dilation"], attrs["groups"]
    )  # fmt: skip
