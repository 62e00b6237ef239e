"""The networks compared: torchvision's own definitions, and BERT, with seeded weights; in every form that the
rivals take.
"""

import copy
import functools
import importlib.util
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from bslite.spec import Array, ModelSpec
from bslite.verification import FACTOR, TINY

NETS = (
    "alexnet",
    "vgg16",
    "resnet18",
    "resnet50",
    "squeezenet1_1",
    "densenet121",
    "densenet201",
    "inception_v3",
    "googlenet",
    "mobilenet_v2",
    "efficientnet_b0",
)
TRANSFORMERS = ("bert_base", "vit_b_16")  # measured where they are named
SIDES = {"inception_v3": 299}
IMAGES = 2  # of a batch, that the reference computes
SAME = 1e-9  # relative L2 that two answers in float64 may differ by
#: The same of other libraries' networks, whose numbers (a scale, an eps) are captured as float32.
ROUNDED = 1e-6


class Net:
    """One network and its input: torch module, bslite model, ONNX file, and the true answer.

    The true answer is that of the first ``checked`` images of ``x``, of all if None.
    """

    def __init__(
        self, name: str, module: Any, x: Array, folder: Path = Path(), checked: int | None = None
    ) -> None:
        self.name, self.module, self.x, self.folder, self.checked = name, module, x, folder, checked

    @functools.cached_property
    def exact(self) -> Array:
        """The answer in float64."""
        import torch

        double = copy.deepcopy(self.module).double()
        x = torch.from_numpy(self.x[: self.checked])
        with torch.no_grad():
            answer: Array = double(x.double() if x.is_floating_point() else x).numpy()
        return answer

    @functools.cached_property
    def reference(self) -> Array:
        """The answer of bslite's reference in float64, of the first `IMAGES` of ``x``.

        Raises ValueError if it is not torch's.
        """
        from bslite import reference

        made = reference.run(self.spec, [self.x[:IMAGES]], np.float64)[0]
        if not (off := distance(made, self.exact[:IMAGES])) <= (ROUNDED if ":" in self.name else SAME):
            raise ValueError(f"bslite's reference in float64 differs from torch by {off:.1e}")
        return made

    @functools.cached_property
    def spec(self) -> ModelSpec:
        """The model in bslite: by name where it knows the architecture, else captured from the module."""
        import torch

        from bslite.frontends.weights import architectures
        from bslite.frontends.weights.state_dict import from_state_dict

        if self.name in architectures.NAMES:
            return from_state_dict(self.name, self.module.state_dict())
        from bslite.frontends import from_torch

        captured: ModelSpec = from_torch(self.module, (torch.from_numpy(self.x),))
        return captured

    @functools.cached_property
    def onnx(self) -> Path:
        """Path of the exported model, of this batch size."""
        import torch

        path = self.folder / f"{self.name.replace(':', '-')}-{len(self.x)}.onnx"
        fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)  # it is one operation, which ONNX does not have
        try:
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                torch.onnx.export(
                    self.module, (torch.from_numpy(self.x),), str(path), dynamo=False, opset_version=17
                )
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)
        return path

    def error(self, answer: Array, batch: int | None = None) -> float:
        """Relative L2 distance of an answer from the true one; infinite for another shape.

        ``batch``: if only that many images, the first of ``x``, were asked for.
        """
        if len(answer) != (batch or len(self.x)):
            return float("inf")
        return distance(answer[: self.checked], self.exact[:batch])

    def wrong(self, answer: Array) -> str | None:
        """Why an answer is wrong, or None."""
        error = self.error(answer)
        return None if error <= self.bound else f"wrong answer: error {error:.1e}, bound {self.bound:.1e}"

    @functools.cached_property
    def bound(self) -> float:
        """What an answer may be off by: a few times torch's own error in float32."""
        import torch

        with torch.inference_mode():
            made = self.module(torch.from_numpy(self.x[: self.checked]))
        answer = made[0] if isinstance(made, tuple) else made  # the outputs, of what gives a state besides
        return FACTOR * distance(answer.numpy(), self.exact) + TINY


def make(name: str, batch: int, seed: int, folder: Path, checked: int | None = None) -> Net:
    """A network by name, with weights and input from ``seed``; ``folder`` takes its files."""
    if ":" in name:
        from benchmarks.peers import libraries

        return Net(name, *libraries.made(name, batch, seed), folder, checked)
    x = np.random.default_rng(seed).standard_normal((batch, *shape(name)), np.float32)
    return Net(name, module(name, seed), x, folder, checked)


def shape(name: str) -> tuple[int, ...]:
    """Of one image, or of the embedded tokens of one text."""
    if name == "bert_base":
        from benchmarks.peers import bert

        return bert.TOKENS, bert.HIDDEN
    side = SIDES.get(name, 224)
    return 3, side, side


def distance(answer: Array, exact: Array) -> float:
    """Relative L2; infinite for another shape."""
    if answer.shape != exact.shape:
        return float("inf")
    return float(np.linalg.norm(answer - exact) / np.linalg.norm(exact))


def module(name: str, seed: int) -> Any:
    """BERT, or torchvision's module, in eval mode; only the tests' helper knows how to import the latter."""
    if name == "bert_base":
        from benchmarks.peers.bert import bert

        return bert(seed)
    return _helper().model(name, seed)


def import_models() -> Any:
    """``torchvision.models``, which a stored module needs before it is loaded."""
    return _helper().import_models()


@functools.cache
def _helper() -> Any:
    path = Path(__file__).parents[2] / "tests" / "support" / "torchvision_models.py"
    found = importlib.util.spec_from_file_location("torchvision_models", path)
    assert found is not None
    assert found.loader is not None
    loaded = importlib.util.module_from_spec(found)
    found.loader.exec_module(loaded)
    return loaded
