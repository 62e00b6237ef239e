"""Whole networks on the CPU engine against torchvision's own definitions, same weights, three-way."""

import pytest
from support.check import assert_three_way
from support.networks import networks
from support.noise import images
from support.torch_three_way import by_torch
from support.torchvision_models import model

import bslite
from bslite.frontends.weights import architectures

#: Deeper networks of the layers that another has; `test_architectures` holds them to torchvision's.
DEEPER = {
    "vgg11_bn", "vgg13", "vgg13_bn", "vgg16_bn", "vgg19", "vgg19_bn", "resnet101", "resnet152", "densenet169",
}  # fmt: skip
NAMES = [name for name in architectures.NAMES if name not in DEEPER]


def sizes(name: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Two small image sizes the network accepts, neither square."""
    return ((107, 99), (139, 128)) if name == "inception_v3" else ((64, 79), (97, 70))


@pytest.mark.parametrize("name", networks(NAMES))
def test_matches_torchvision_at_batches_and_resolutions(name: str) -> None:
    module = model(name)
    spec = bslite.from_state_dict(name, module.state_dict())
    first, second = sizes(name)
    for batch, size in [(1, first), (3, first), (1, second)]:
        x = images(batch, *size)
        (peer,), (exact,) = by_torch(module, x)
        got = bslite.run(spec, x, threads=1)
        assert_three_way(got, peer, exact)
        assert bslite.run(spec, x, threads=2).tobytes() == got.tobytes()
        assert bslite.run(spec, x, layerwise=True).tobytes() == got.tobytes()
        for i in range(batch if batch > 1 else 0):  # nor do an image's bits depend on its neighbours
            assert bslite.run(spec, x[i : i + 1]).tobytes() == got[i : i + 1].tobytes()
