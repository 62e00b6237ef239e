"""torchvision's networks, converted whole and run layer by layer, against torch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.check import rel_l2
from support.networks import networks
from support.torch_modules import MODULES_OF_ATTENTION, torch
from support.torch_three_way import by_torch
from support.torchvision_models import model

import bslite
from bslite import ModelSpec, from_torch, reference
from bslite.passes import simplify

#: Network -> image size: small, but enough for every pooling.
NETS = dict.fromkeys(
    (
        "resnet18", "densenet121", "googlenet", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0",
        "squeezenet1_1", "shufflenet_v2_x1_0", "mnasnet0_5", "regnet_y_400mf", "convnext_tiny", "swin_t",
        "swin_v2_t", "lraspp_mobilenet_v3_large",
    ), 64,
) | {"inception_v3": 75, "vit_b_32": 224}  # fmt: skip
#: Networks that compute tables from some of their parameters, which become constants of the model: a part
#: of those constants' names.
TABLES = {"swin_t": "attn", "swin_v2_t": "attn"}


def check(module: Any, spec: ModelSpec, size: int) -> None:
    """Compare in float64, where a network that amplifies rounding errors (EfficientNet) cannot hide anything.

    What remains is scalars of the forward methods, which the model stores in float32.
    """
    x = torch.randn(2, 3, size, size, generator=torch.manual_seed(1))
    _, (want,) = by_torch(module, x)
    (got,) = reference.run(spec, [x.numpy()], np.float64)
    assert rel_l2(got, want) <= 1e-6


@pytest.mark.parametrize(("name", "size"), networks(NETS.items()))
def test_agrees_with_torch(name: str, size: int) -> None:
    module = model(name)
    spec = from_torch(module, torch.zeros(1, 3, size, size))
    assert spec.inputs[0].shape == ("N", 3, size, size)
    own = module.state_dict()
    computed = {key for key in spec.params if key not in own and not key.startswith("scalar.")}
    assert not computed or all(TABLES.get(name, "none") in key for key in computed), sorted(computed)[:5]
    layers = {
        f"{p}.weight" for p, m in module.named_modules() if isinstance(m, (torch.nn.Linear, torch.nn.Conv2d))
    }
    assert {key for key in layers if "cpb_mlp" not in key and "aux" not in key.lower()} <= set(spec.params)
    check(module, spec, size)


def test_layer_names_of_resnet18() -> None:
    module = model("resnet18")
    spec = from_torch(module, torch.randn(1, 3, 64, 64))
    paths = dict(module.named_modules())
    convs = [n.name for n in spec.nodes if n.op == "conv2d"]
    assert convs == [path for path, m in paths.items() if isinstance(m, torch.nn.Conv2d)]
    assert [n.name for n in spec.nodes if n.name not in paths and "#" not in n.name] == [
        *(f"layer{i}.{j}.add" for i in (1, 2, 3, 4) for j in (0, 1)),
        "flatten",
    ]


def test_googlenet_with_transformed_input() -> None:
    """The input's channels are picked, scaled and shifted one by one, and put together again."""
    module = model("googlenet", transform_input=True)
    spec = from_torch(module, torch.randn(1, 3, 64, 64))
    check(module, spec, 64)


@pytest.mark.parametrize("make", MODULES_OF_ATTENTION.values(), ids=MODULES_OF_ATTENTION)
def test_modules_of_attention(make: Callable[[], Any]) -> None:
    """torch's own modules: never by their fast path, whose operations are whole layers; in any batch."""
    torch.manual_seed(0)
    module = make().eval()
    spec = from_torch(module, torch.randn(2, 5, 12))
    assert spec.inputs[0].shape == ("N", 5, 12)
    fused = simplify(spec)
    assert "attention" in {n.op for n in fused.nodes}
    assert "softmax" not in {n.op for n in fused.nodes}
    x = torch.randn(3, 5, 12)
    _, (want,) = by_torch(module, x)
    for version in (spec, fused):
        (got,) = reference.run(version, [x.numpy()], np.float64)
        assert rel_l2(got, want) <= 1e-6
    assert rel_l2(bslite.run(spec, x.numpy()), want) <= 1e-6
