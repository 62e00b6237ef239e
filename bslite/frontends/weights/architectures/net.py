"""What an architecture is before it has weights: layers, and the shapes its parameters must have."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bslite import ops
from bslite.errors import SpecError
from bslite.ops import Shape
from bslite.registry import Registry
from bslite.spec import Array, GraphBuilder, ModelSpec

Size = int | tuple[int, int]


class Net:
    """A network being described, layer by layer. Each method adds one layer and returns its value's name.

    Layers are named by their path in torchvision's module, parameters ``path.role``. ``wanted`` collects the
    shape of every parameter a state_dict must bring, ``fixed`` those the architecture itself defines.
    Shapes are inferred along the way, so a layer states only what it makes: ``net.conv(x, "conv1", 64, 7)``.
    """

    def __init__(self, name: str, classes: int, image: tuple[int, int]) -> None:
        self.graph = GraphBuilder(name)
        self.classes = classes
        self.wanted: dict[str, Shape] = {}
        self.fixed: dict[str, Array] = {}
        example = (1, 3, *image)
        self.input = self.graph.input("x", ("N", 3, "H", "W"), example)
        self.shapes: dict[str, Shape] = {self.input: example}

    def add(
        self, op: str, name: str, *inputs: str, params: Mapping[str, Shape] | None = None, **attrs: Any
    ) -> str:
        """Append any op; ``params`` gives the shape of each role, wanted under the key ``name.role``."""
        roles = dict(params or {})
        keys = {role: f"{name}.{role}" for role in roles}
        value = self.graph.add(op, name, *inputs, params=keys, **attrs)
        node = self.graph.nodes[-1]
        try:
            self.shapes[value] = ops.infer(
                node.declaration, [self.shapes[i] for i in inputs], roles, node.attrs
            )
        except SpecError as e:
            raise SpecError(f"{self.graph.name}, layer {value!r}: {e}") from None
        self.wanted.update({keys[role]: shape for role, shape in roles.items()})
        return value

    def channels(self, x: str) -> int:
        """Size of axis 1."""
        return self.shapes[x][1]

    def conv(
        self, x: str, name: str, out: int, kernel: Size, *, stride: int = 1, padding: Size = 0,
        groups: int = 1, bias: bool = False,
    ) -> str:  # fmt: skip
        """Convolution to ``out`` channels."""
        window = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        params: dict[str, Shape] = {"weight": (out, self.channels(x) // groups, *window)}
        if bias:
            params["bias"] = (out,)
        return self.add("conv2d", name, x, params=params, stride=stride, padding=padding, groups=groups)

    def norm(self, x: str, name: str, eps: float = 1e-5) -> str:
        """Batch normalisation with running statistics."""
        shape = (self.channels(x),)
        roles = ("weight", "bias", "running_mean", "running_var")
        return self.add("batch_norm", name, x, params=dict.fromkeys(roles, shape), eps=eps)

    def linear(self, x: str, name: str, out: int) -> str:
        """Fully connected layer with bias to ``out`` features."""
        return self.add("linear", name, x, params={"weight": (out, self.channels(x)), "bias": (out,)})

    def relu(self, x: str, name: str) -> str:
        """max(x, 0)."""
        return self.add("relu", name, x)

    def max_pool(
        self, x: str, name: str, kernel: int, stride: int, *, padding: int = 0, ceil: bool = False
    ) -> str:
        """Maximum over windows; ``ceil`` keeps a last partial window."""
        return self.add("max_pool2d", name, x, kernel=kernel, stride=stride, padding=padding, ceil_mode=ceil)

    def avg_pool(self, x: str, name: str, kernel: int, stride: int, *, padding: int = 0) -> str:
        """Mean over windows, zeros of the padding included."""
        return self.add("avg_pool2d", name, x, kernel=kernel, stride=stride, padding=padding)

    def adaptive_pool(self, x: str, name: str, size: int = 1) -> str:
        """Mean over a grid of ``size`` x ``size`` regions, whatever the image's size."""
        return self.add("adaptive_avg_pool2d", name, x, output_size=(size, size))

    def concat(self, name: str, *inputs: str) -> str:
        """Join along channels."""
        return self.add("concat", name, *inputs, axis=1)

    def flatten(self, x: str) -> str:
        """``[N, C, H, W] -> [N, C*H*W]``."""
        return self.add("flatten", "flatten", x, start_axis=1, end_axis=-1)

    def dropout(self, x: str, name: str, p: float) -> str:
        """The identity at inference; kept so that the graph shows the user's layers."""
        return self.add("dropout", name, x, p=p)

    def affine(self, x: str, name: str, scale: list[float], shift: list[float]) -> str:
        """``x * scale + shift`` per channel with constants of the architecture, as a batch norm."""
        constants = {"weight": scale, "bias": shift, "running_mean": [0.0] * 3, "running_var": [1.0] * 3}
        value = self.add(
            "batch_norm", name, x, params={role: (len(v),) for role, v in constants.items()}, eps=0.0
        )
        for role, v in constants.items():
            del self.wanted[f"{name}.{role}"]
            self.fixed[f"{name}.{role}"] = np.array(v, np.float32)
        return value

    def build(self, output: str, params: Mapping[str, Array]) -> ModelSpec:
        """The model, given an array for every wanted parameter."""
        self.graph.params.update({key: params[key] for key in self.wanted})
        self.graph.params.update(self.fixed)
        return self.graph.build(output)


@dataclass(frozen=True)
class Architecture:
    """A named network. ``body(net, x)`` adds its layers behind the value ``x`` and returns the output's name.

    ``classifier`` is the layer whose weight's first size is the number of classes; ``ignored`` are prefixes
    of parameters used only in training; ``rename`` brings old spellings of parameter names to today's.
    """

    name: str
    body: Callable[[Net, str], str]
    source: str
    classifier: str
    image_size: int = 224
    ignored: tuple[str, ...] = ()
    rename: Callable[[str], str] = str
    may_transform_input: bool = False

    def describe(
        self, classes: int = 1000, image: tuple[int, int] | None = None, transform_input: bool = False
    ) -> tuple[Net, str]:
        """The network and its output's name; ``image`` is the (height, width) of the example shape."""
        net = Net(self.name, classes, image or (self.image_size, self.image_size))
        x = _imagenet_to_half(net) if transform_input else net.input
        return net, self.body(net, x)


ARCHITECTURES: Registry[Architecture] = Registry("architecture")


def register(*architectures: Architecture) -> None:
    """Make architectures known by their names."""
    for architecture in architectures:
        ARCHITECTURES.add(architecture.name, architecture)


def _imagenet_to_half(net: Net) -> str:
    """torchvision's ``transform_input``: from ImageNet's mean and deviation to mean and deviation 0.5.

    Its GoogLeNet and Inception weights were trained elsewhere, on images scaled to [-1, 1].
    """
    mean, deviation = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    return net.affine(
        net.input, "transform_input", [d / 0.5 for d in deviation], [(m - 0.5) / 0.5 for m in mean]
    )
