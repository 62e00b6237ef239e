"""torchvision's own models as test subjects: seeded weights, live batch norms, nothing downloaded."""

import importlib
import importlib.util
import inspect
import sys
import warnings
from typing import Any

import pytest

from bslite.frontends.weights import architectures
from bslite.frontends.weights.architectures.random_weights import random_state_dict

torch = pytest.importorskip("torch")

#: Arguments beyond ``weights=None`` that some constructors need to stay quiet and quick.
OPTIONS: dict[str, dict[str, Any]] = {
    "googlenet": {"init_weights": False, "aux_logits": True},
    "inception_v3": {"init_weights": False, "aux_logits": True},
}


def import_models() -> Any:
    """The module ``torchvision.models``; skips the test only where torchvision is not installed.

    torchvision's compiled operators may be built for another torch than the one installed. The package then
    fails to import for want of two operators that no classification model uses: declare them and try again.
    """
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module("torchvision.models")
        except RuntimeError:
            for name in [m for m in sys.modules if m.partition(".")[0] == "torchvision"]:
                del sys.modules[name]
            for name in ("nms", "qnms"):
                _LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            return importlib.import_module("torchvision.models")


_LIBRARY = torch.library.Library("torchvision", "FRAGMENT")  # kept: dropping it withdraws the declarations


def alive(module: Any) -> Any:
    """``module`` with weights that carry the signal and statistics as after training, in eval mode."""
    nn = torch.nn
    for layer in module.modules():
        if isinstance(layer, (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        elif isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)):
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.uniform_(layer.bias, -0.2, 0.2)
            nn.init.normal_(layer.running_mean, 0.0, 0.1)
            nn.init.uniform_(layer.running_var, 0.5, 2.0)
    return module.eval()


def model(name: str, seed: int = 0, **options: Any) -> Any:
    """``name`` in eval mode with weights from ``seed``; batch norms get statistics as after training.

    torch's default initialisation lets the signal fade until the output hardly depends on the input, and a
    comparison of outputs shows nothing. Hence weights that carry it: ours where bslite knows the
    architecture, He's elsewhere.
    """
    models = import_models()
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        backbone = inspect.signature(models.get_model_builder(name)).parameters.get("weights_backbone")
        given = {"weights_backbone": None} if backbone is not None else {}
        module = models.get_model(name, weights=None, **{**given, **OPTIONS.get(name, {}), **options}).eval()
    alive(module)
    if name in architectures.NAMES:
        ours = random_state_dict(name, seed, options.get("num_classes", 1000))
        state = {key: torch.from_numpy(array) for key, array in ours.items()}
        assert not module.load_state_dict(state, strict=False).unexpected_keys
    return module
