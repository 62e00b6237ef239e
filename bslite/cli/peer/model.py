"""A model in torch, op by op: a rival for `bslite bench` and a second opinion for `bslite.verify`.

Nothing is folded or fused beyond what torch does by itself, and images are channels_last, its faster layout.
"""

import importlib.util
from typing import TYPE_CHECKING

import numpy as np

from bslite.errors import UnsupportedError
from bslite.spec import ModelSpec, Node

if TYPE_CHECKING:
    from torch import Tensor


def present() -> bool:
    """Whether torch is installed; does not import it."""
    return importlib.util.find_spec("torch") is not None


class TorchModel:
    """``model(*tensors)`` computes ``spec`` with torch. UnsupportedError lists the ops that torch lacks."""

    def __init__(self, spec: ModelSpec, threads: int | None = None) -> None:
        import torch

        from bslite.cli.peer.ops import TORCH_OPS

        if threads is not None:
            torch.set_num_threads(threads)
        unknown = sorted({node.op for node in spec.nodes} - set(TORCH_OPS))
        if unknown:
            raise UnsupportedError(f"the torch rival has no {', '.join(unknown)}")
        self.spec = spec
        self._layers = [(node, TORCH_OPS[node.op], self._params(node)) for node in spec.nodes]

    def _params(self, node: Node) -> "dict[str, Tensor]":
        import torch

        arrays = self.spec.node_params(node)
        return {role: _to_fast(torch.from_numpy(np.array(array))) for role, array in arrays.items()}

    def __call__(self, *inputs: "Tensor") -> "list[Tensor]":
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


def _to_fast(x: "Tensor") -> "Tensor":
    import torch

    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x
