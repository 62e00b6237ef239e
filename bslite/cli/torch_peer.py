"""The model once more in torch, op by op through ``torch.nn.functional``: a rival and a second opinion.

Nothing is folded or fused beyond what torch does by itself, and images are channels_last, its faster layout.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from bslite.errors import UnsupportedError
from bslite.spec import ModelSpec, Node

if TYPE_CHECKING:
    from torch import Tensor

Step = Callable[..., Any]


def present() -> bool:
    """Whether torch is installed; does not import it."""
    return importlib.util.find_spec("torch") is not None


class TorchModel:
    """``model(*tensors)`` computes ``spec`` with torch. UnsupportedError lists the ops it has no word for."""

    def __init__(self, spec: ModelSpec, threads: int | None = None) -> None:
        import torch

        if threads is not None:
            torch.set_num_threads(threads)
        table = _steps()
        unknown = sorted({node.op for node in spec.nodes} - set(table))
        if unknown:
            raise UnsupportedError(f"the torch rival has no {', '.join(unknown)}")
        self.spec = spec
        self._layers = [(node, table[node.op], self._params(node)) for node in spec.nodes]

    def _params(self, node: Node) -> dict[str, Tensor]:
        import torch

        arrays = self.spec.node_params(node)
        return {role: _to_fast(torch.from_numpy(np.array(array))) for role, array in arrays.items()}

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        import torch

        values = {i.name: _to_fast(x) for i, x in zip(self.spec.inputs, inputs, strict=True)}
        left = {name: index for index, node in enumerate(self.spec.nodes) for name in node.inputs}
        with torch.inference_mode():
            for index, (node, step, params) in enumerate(self._layers):
                values[node.name] = step(*(values[i] for i in node.inputs), **params, **node.attrs)
                for name in node.inputs:
                    if left[name] == index and name not in self.spec.outputs:
                        values.pop(name, None)
        return [values[name] for name in self.spec.outputs]


def _to_fast(x: Tensor) -> Tensor:
    import torch

    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


def _window(pads: tuple[int, ...]) -> tuple[int, int]:
    """torch's symmetric padding; what it cannot say is padded by hand before, see `_padded`."""
    return (pads[0], pads[1]) if pads[:2] == pads[2:] else (0, 0)


def _padded(x: Tensor, pads: tuple[int, ...], value: float = 0.0) -> Tensor:
    """``x`` with asymmetric padding done; symmetric padding is left to the op."""
    import torch.nn.functional as F

    top, left, bottom, right = pads
    return x if (top, left) == (bottom, right) else F.pad(x, (left, right, top, bottom), value=value)


def _steps() -> dict[str, Step]:
    """Op name -> function of tensors, parameters and attributes."""
    import torch
    import torch.nn.functional as F

    def conv2d(x, *, weight, bias=None, stride, padding, dilation, groups):  # type: ignore[no-untyped-def]
        return F.conv2d(_padded(x, padding), weight, bias, stride, _window(padding), dilation, groups)

    def max_pool2d(x, *, kernel, stride, padding, dilation, ceil_mode):  # type: ignore[no-untyped-def]
        x = _padded(x, padding, -float("inf"))
        return F.max_pool2d(x, kernel, stride, _window(padding), dilation, ceil_mode)

    def avg_pool2d(  # type: ignore[no-untyped-def]
        x, *, kernel, stride, padding, dilation, ceil_mode, count_include_pad, divisor_override
    ):
        if set(dilation) != {1}:
            raise UnsupportedError("torch has no average pooling with dilation")
        if padding[:2] != padding[2:]:
            raise UnsupportedError("torch has no average pooling with asymmetric padding")
        pads = _window(padding)
        return F.avg_pool2d(x, kernel, stride, pads, ceil_mode, count_include_pad, divisor_override)

    def batch_norm(x, *, running_mean, running_var, weight=None, bias=None, eps):  # type: ignore[no-untyped-def]
        return F.batch_norm(x, running_mean, running_var, weight, bias, False, 0.0, eps)

    def pad(x, *, pads, value):  # type: ignore[no-untyped-def]
        rank = x.dim()
        return F.pad(x, [p for i in reversed(range(rank)) for p in (pads[i], pads[i + rank])], value=value)

    def slice_(x, *, axis, start, stop, step):  # type: ignore[no-untyped-def]
        return x[(slice(None),) * (axis % x.dim()) + (slice(start, stop, step),)]

    return {
        "conv2d": conv2d,
        "linear": lambda x, *, weight, bias=None: F.linear(x, weight, bias),
        "matmul": torch.matmul,
        "batch_norm": batch_norm,
        "max_pool2d": max_pool2d,
        "avg_pool2d": avg_pool2d,
        "adaptive_avg_pool2d": lambda x, *, output_size: F.adaptive_avg_pool2d(x, output_size),
        "adaptive_max_pool2d": lambda x, *, output_size: F.adaptive_max_pool2d(x, output_size),
        "relu": F.relu,
        "relu6": F.relu6,
        "leaky_relu": F.leaky_relu,
        "elu": F.elu,
        "gelu": F.gelu,
        "silu": F.silu,
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "hardswish": F.hardswish,
        "hardsigmoid": F.hardsigmoid,
        "softmax": lambda x, *, axis: F.softmax(x, axis),
        "log_softmax": lambda x, *, axis: F.log_softmax(x, axis),
        "dropout": lambda x, *, p: x,
        "constant": lambda *, value: value,
        "add": torch.add,
        "mul": torch.mul,
        "concat": lambda *xs, axis: torch.cat(xs, axis),
        "flatten": lambda x, *, start_axis, end_axis: torch.flatten(x, start_axis, end_axis),
        "permute": lambda x, *, order: x.permute(order),
        "pad": pad,
        "slice": slice_,
        "lrn": lambda x, *, size, alpha, beta, k: F.local_response_norm(x, size, alpha, beta, k),
        "layer_norm": lambda x, *, weight=None, bias=None, normalized_shape, eps: F.layer_norm(
            x, normalized_shape, weight, bias, eps
        ),
        "group_norm": lambda x, *, weight=None, bias=None, num_groups, eps: F.group_norm(
            x, num_groups, weight, bias, eps
        ),
    }
