"""The named architectures against torchvision's modules: parameter names, shapes, and what they compute."""

import numpy as np
import pytest
from support.check import assert_three_way, rel_l2
from support.networks import networks
from support.process import printed
from support.torch_three_way import by_torch
from support.torchvision_models import model as torchvision_model

from bslite import reference
from bslite.errors import UnsupportedError
from bslite.frontends.weights import architectures
from bslite.frontends.weights.architectures.random_weights import random_state_dict
from bslite.frontends.weights.state_dict import from_state_dict

#: Side of the square test image: the least that keeps every layer at work (Inception needs 75).
SIDES = {"inception_v3": 107}
SIDE = 64
LOUD = {"mobilenet_v2": 6}  # so that every ReLU6 has something to clip
TRAINING_ONLY = ("num_batches_tracked", "AuxLogits.", "aux1.", "aux2.")


def image(name: str, batch: int = 1) -> np.ndarray:
    """Noise over coloured squares: images of noise alone look alike to a network that averages."""
    rng = np.random.default_rng(0)
    side = SIDES.get(name, SIDE)
    height, width = side, side + 5  # not square, so that a mix-up of height and width shows
    squares = np.kron(rng.standard_normal((batch, 3, 4, 4)), np.ones((width // 4 + 1,) * 2))
    noise = rng.standard_normal((batch, 3, height, width))
    return (squares[:, :, :height, :width] + 0.5 * noise).astype(np.float32)


@pytest.mark.parametrize("name", networks(architectures.NAMES))
def test_matches_torchvision(name: str) -> None:
    module = torchvision_model(name)
    state = module.state_dict()
    wanted, _ = architectures.get(name).describe()
    theirs = {
        key: tuple(value.shape)
        for key, value in state.items()
        if not key.startswith(TRAINING_ONLY) and not key.endswith(TRAINING_ONLY)
    }
    assert wanted.wanted == theirs

    spec = from_state_dict(name, state)
    x = image(name, batch=2) * np.float32(LOUD.get(name, 1))
    (want,), (exact,) = by_torch(module, x)
    assert rel_l2(want[:1], want[1:]) > 0.05, "the outputs hardly depend on the image: nothing would show"
    [got] = reference.run(spec, [x], np.float32)
    assert got.shape == (2, 1000)
    assert_three_way(got, want, exact)


@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_transform_input_matches_torchvision(name: str) -> None:
    module = torchvision_model(name, seed=2, transform_input=True)
    state = module.state_dict()
    spec = from_state_dict(name, state, transform_input=True)
    x = image(name)
    (want,), (exact,) = by_torch(module, x)
    [got] = reference.run(spec, [x], np.float32)
    assert_three_way(got, want, exact)
    [plain] = reference.run(from_state_dict(name, state), [x], np.float32)
    assert rel_l2(plain, want) > 0.01


@pytest.mark.parametrize("name", networks(architectures.NAMES))
def test_random_weights_keep_activations_sane(name: str) -> None:
    weights = random_state_dict(name, seed=3)
    spec = from_state_dict(name, weights, image_size=SIDES.get(name, SIDE))
    assert list(spec.params) == list(weights)
    for node, value in reference.layers(spec, [image(name, batch=2)], np.float32):
        size = float(np.sqrt(np.mean(np.square(value, dtype=np.float64))))
        assert 0.02 < size < 20, f"{node.name}: root mean square {size:.3g}"
        assert rel_l2(value[:1], value[1:]) > 0.01, f"{node.name}: two images look the same"
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


def test_random_weights_are_the_same_in_every_process() -> None:
    """A demo shows the same numbers everywhere: Python's own hashes, which differ, are not in them."""
    code = """
import hashlib
from bslite.frontends.weights.architectures.random_weights import random_state_dict
weights = random_state_dict("squeezenet1_1", 0)
print(hashlib.sha256(b"".join(w.tobytes() for w in weights.values())).hexdigest())
"""
    assert printed(code, PYTHONHASHSEED="1") == printed(code, PYTHONHASHSEED="2") != ""


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
    said = r"unknown architecture 'resnet51'; did you mean .*resnet50"
    for refused in (architectures.get, lambda name: from_state_dict(name, {})):
        with pytest.raises(UnsupportedError, match=said) as e:
            refused("resnet51")
        assert all(name in str(e.value) for name in architectures.NAMES)
