"""Layers as stages of the stack kernel: words that select code, numbers, and tensors from outside."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bslite import ops
from bslite.kernels.contracts.cuda.stack import Window
from bslite.kernels.contracts.elementwise import FLOATS
from bslite.ops import Shape
from bslite.ops.pool import WindowPool
from bslite.passes import Layer
from bslite.passes.fuse import ACTIVATIONS
from bslite.plan.shared.activation import activation
from bslite.spec import ModelSpec, Node

Shapes = Mapping[str, Shape]
POOLS = {"max_pool2d": "max", "avg_pool2d": "avg"}
WIDEST = 7  # rows and columns of a window, at most


@dataclass(frozen=True)
class Piece:
    """One layer in a stack. ``parts`` says how the rows of per-channel numbers come from the parameters
    ``keys`` (the recipe "channel_rows"): a kind, how many keys, and the kind's arguments.
    """

    layer: Layer
    words: tuple[str, ...]
    window: Window | None = None
    outside: tuple[str, ...] = ()
    parts: tuple[tuple[Any, ...], ...] = ()
    keys: tuple[str, ...] = ()


def piece_of(layer: Layer, value: str, spec: ModelSpec, shapes: Shapes) -> Piece | None:
    """Return the layer as stages that work on the running value ``value``; None if it cannot be one."""
    node = layer.node
    if len(shapes[value]) != 4 or len(shapes[layer.name]) != 4 or layer.residual is not None:
        return None
    if any(spec.dtypes[name] != "float32" for name in (*layer.inputs, layer.name)):
        return None
    window: Window | None = None
    outside: tuple[str, ...] = ()
    words: list[str] = []
    parts: list[tuple[Any, ...]] = []
    keys: list[str] = []
    if node.op in POOLS:
        window = _pool(node, shapes)
        if window is None:
            return None
    elif node.op == "conv2d":
        window = _filter(node, spec, shapes)
        if window is None:
            return None
        mine = [node.params[role] for role in ("weight", "bias") if role in node.params]
        parts.append(("taps", len(mine)))
        keys += mine
    elif node.op == "batch_norm":
        words.append(_affine(node, parts, keys))
    elif node.op in FLOATS:
        if node.inputs.count(value) != 1 or shapes[layer.name] != shapes[value]:
            return None
        first = node.inputs[0] == value
        outside = (node.inputs[1 if first else 0],)
        words.append(f"{'with' if first else 'by'}:{node.op}")
    elif node.op in ACTIVATIONS:
        words += _function(node)
    else:
        return None
    if window is not None:
        words.append(window.word)
    if layer.affine is not None:
        words.append(_affine(layer.affine, parts, keys))
    if layer.activation is not None:
        words += _function(layer.activation)
    return Piece(layer, tuple(words), window, outside, tuple(parts), tuple(keys))


def _function(node: Node) -> list[str]:
    """Return an activation with its parameters."""
    name, a, b = activation(node)
    numbers = [] if a == b == 0.0 else [repr(float(a)), repr(float(b))]
    return [":".join([name, ",".join(numbers)]) if numbers else name] if name != "identity" else []


def _affine(node: Node, parts: list[tuple[Any, ...]], keys: list[str]) -> str:
    """Return a batch norm's stage, and record the parameters that its numbers are made from."""
    roles = tuple(r for r in ("weight", "bias", "running_mean", "running_var") if r in node.params)
    parts.append(("affine", len(roles), roles, node.attrs["eps"]))
    keys += [node.params[r] for r in roles]
    return "affine"


def _beyond(
    size: tuple[int, ...], made: tuple[int, ...], kernel: tuple[int, ...], stride: tuple[int, ...],
    before: tuple[int, ...],
) -> tuple[int, int]:  # fmt: skip
    h, w = (
        max(0, (p - 1) * s - b + k - n)
        for n, p, k, s, b in zip(size, made, kernel, stride, before, strict=True)
    )
    return h, w


def _pool(node: Node, shapes: Shapes) -> Window | None:
    op = ops.get(node.op)
    assert isinstance(op, WindowPool)
    kernel, stride, dilation = op.geometry(node.attrs)
    if dilation != (1, 1) or max(kernel) > WIDEST:
        return None
    before, after = node.attrs["padding"][:2], node.attrs["padding"][2:]
    size, made = shapes[node.inputs[0]][2:], shapes[node.name][2:]
    beyond = _beyond(size, made, kernel, stride, before)
    divisor = 0
    if node.op == "avg_pool2d":
        divisor = node.attrs["divisor_override"] or kernel[0] * kernel[1]
        if node.attrs["divisor_override"] is None and any((*before, *beyond)):
            if not node.attrs["count_include_pad"]:
                divisor = 0
            elif any(b > a for b, a in zip(beyond, after, strict=True)):
                return None  # windows beyond the padding count differently
    return Window(POOLS[node.op], _two(kernel), _two(stride), _two(before), beyond, divisor)


def _filter(node: Node, spec: ModelSpec, shapes: Shapes) -> Window | None:
    """Return a depthwise convolution with one filter per channel."""
    k, each, *kernel = spec.param_shapes(node)["weight"]
    channels = shapes[node.inputs[0]][1]
    attrs = node.attrs
    if not (each == 1 and attrs["groups"] == k == channels) or attrs["dilation"] != (1, 1):
        return None
    before = attrs["padding"][:2]
    if max(kernel) > WIDEST or any(p >= r for p, r in zip(attrs["padding"], (*kernel, *kernel), strict=True)):
        return None
    size, made = shapes[node.inputs[0]][2:], shapes[node.name][2:]
    beyond = _beyond(size, made, tuple(kernel), attrs["stride"], before)
    bias = int("bias" in node.params)
    return Window("depthwise", _two(kernel), _two(attrs["stride"]), _two(before), beyond, bias)


def _two(numbers: Any) -> tuple[int, int]:
    a, b = numbers
    return a, b
