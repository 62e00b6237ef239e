"""The named architectures against torchvision's modules: parameter names, shapes, and what they compute."""

from __future__ import annotations

import numpy as np
import pytest

from bslite import reference
from bslite.errors import UnsupportedError
from bslite.frontends import architectures
from bslite.frontends.architectures.random_weights import random_state_dict
from bslite.frontends.state_dict import from_state_dict

#: Side of the square test image: the least that keeps every layer at work (Inception needs 75).
SIDES = {"inception_v3": 107}
SIDE = 64
TRAINING_ONLY = ("num_batches_tracked", "AuxLogits.", "aux1.", "aux2.")


def image(name: str, batch: int = 1, seed: int = 0) -> np.ndarray:
    side = SIDES.get(name, SIDE)
    # Not square, so that a mix-up of height and width shows.
    shape = (batch, 3, side, side + 5)
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def error(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want.astype(np.float64)))


@pytest.mark.parametrize("name", architectures.NAMES)
def test_matches_torchvision(name: str) -> None:
    torch = pytest.importorskip("torch")
    import torchvision_models

    module = torchvision_models.model(name, seed=1)
    state = module.state_dict()
    wanted, _ = architectures.get(name).describe()
    theirs = {
        key: tuple(value.shape)
        for key, value in state.items()
        if not key.startswith(TRAINING_ONLY) and not key.endswith(TRAINING_ONLY)
    }
    assert wanted.wanted == theirs

    spec = from_state_dict(name, state)
    x = image(name, batch=2)
    with torch.no_grad():
        want = module(torch.from_numpy(x)).numpy()
    assert np.isfinite(want).all()
    assert np.ptp(want) > 0
    [got] = reference.run(spec, [x], np.float32)
    assert got.dtype == np.float32
    assert got.shape == want.shape == (2, 1000)
    assert error(got, want) <= 1e-5


@pytest.mark.parametrize("name", architectures.NAMES)
def test_random_weights_keep_activations_sane(name: str) -> None:
    weights = random_state_dict(name, seed=3)
    spec = from_state_dict(name, weights, image_size=SIDES.get(name, SIDE))
    assert list(spec.params) == list(weights)
    for node, value in reference.layers(spec, [image(name)], np.float32):
        assert np.isfinite(value).all(), node.name
        # A layer of one pixel may be all zeros behind a rectifier, hence the mean square of the whole layer.
        size = float(np.sqrt(np.mean(np.square(value, dtype=np.float64))))
        assert 1e-3 < size < 1e3, f"{node.name}: root mean square {size:.3g}"
        if node.op == "batch_norm":
            params = spec.node_params(node)
            assert 0.5 <= params["running_var"].min() < params["running_var"].max() <= 2.0
            assert 0 < np.abs(params["running_mean"]).max() < 1


def test_random_weights_depend_on_the_seed_only() -> None:
    first, again, other = (random_state_dict("resnet18", seed) for seed in (0, 0, 1))
    for key in first:
        assert first[key].dtype == np.float32
        assert np.array_equal(first[key], again[key])
        assert not np.array_equal(first[key], other[key])
    # Frozen: a demo shows the same numbers everywhere and always.
    bits = [float(v).hex() for v in first["conv1.weight"].ravel()[:2]]
    assert bits == ["0x1.9a549c0000000p-4", "0x1.4091880000000p-5"]


def test_image_size_sets_only_the_example() -> None:
    weights = random_state_dict("resnet18", num_classes=7)
    small = from_state_dict("resnet18", weights, image_size=(40, 56))
    assert small.inputs[0].example == (1, 3, 40, 56)
    assert small.inputs[0].shape == ("N", 3, "H", "W")
    assert from_state_dict("resnet18", weights).inputs[0].example == (1, 3, 224, 224)
    [out] = reference.run(small, [np.zeros((2, 3, 33, 70), np.float32)], np.float32)
    assert out.shape == (2, 7)


def test_layers_carry_torchvisions_paths() -> None:
    net, output = architectures.get("resnet50").describe()
    names = {node.name for node in net.graph.nodes}
    assert {"conv1", "layer1.0.conv1", "layer1.0.bn1", "layer1.0.relu", "layer1.0.downsample.0"} <= names
    assert output == "fc"
    assert all(key.rpartition(".")[0] in names for key in net.wanted)


def test_unknown_architecture_names_near_misses_and_lists_all() -> None:
    with pytest.raises(
        UnsupportedError, match=r"unknown architecture 'resnet51'; did you mean .*resnet50"
    ) as e:
        architectures.get("resnet51")
    assert all(name in str(e.value) for name in architectures.NAMES)
