"""Sizes that `from_torch` leaves free."""

import warnings
from typing import Any

import numpy as np
import pytest
from support.kept import is_full, with_room
from support.torch_modules import F, Fn, nn, torch

import bslite
from bslite import from_torch
from bslite.api import memory
from bslite.errors import InputError
from bslite.frontends.torch.model import TorchModel
from bslite.spec import ModelSpec


def distance(module: Any, spec: ModelSpec, *inputs: Any) -> float:
    """Relative distance of the engine's first output from torch's."""
    with torch.no_grad():
        want = module(*inputs).numpy()
    made = bslite.run(spec, [x.numpy() for x in inputs])
    return float(np.linalg.norm(made - want) / np.linalg.norm(want))


def image_net() -> Any:
    layers = [
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 4, 3),
    ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)).eval()


def test_height_and_width_stay_free() -> None:
    net = image_net()
    spec = from_torch(net, torch.randn(1, 3, 16, 24), dynamic_shapes="auto")
    assert spec.inputs[0].shape == ("N", 3, "H", "W")
    assert spec.labels == ("output",)
    assert all(distance(net, spec, torch.randn(shape)) < 1e-6 for shape in [(1, 3, 16, 24), (2, 3, 33, 10)])


def test_the_length_of_a_sequence_stays_free() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    net = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
    spec = from_torch(net, torch.randn(2, 5, 16), dynamic_shapes="auto")
    assert not isinstance(spec, TorchModel)
    assert spec.inputs[0].shape == ("N", "L", 16)
    assert distance(net, spec, torch.randn(3, 11, 16)) < 1e-6


@pytest.mark.parametrize(("of_floats", "free"), [(False, True), (True, False)])
def test_what_is_known_for_a_length_is_computed_where_it_is_little(of_floats: bool, free: bool) -> None:
    """And of integers: floats may differ in their last bits from those that are folded."""

    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(64, 512)
            self.layers = nn.Sequential(*(nn.Linear(512, 512) for _ in range(4)))

        def forward(self, x: Any) -> Any:
            places = torch.arange(x.shape[1])
            y = self.layers(x + self.table(places))
            return y + torch.sin(places.float())[:, None] if of_floats else y

    net = Positions().eval()
    spec = from_torch(net, torch.randn(2, 32, 512), dynamic_shapes="auto")
    assert isinstance(spec, TorchModel) is not free
    assert distance(net, spec, torch.randn(3, 47, 512)) < 1e-6


def test_positions_are_known_for_each_length() -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.randn(32, 4))

        def forward(self, x: Any) -> Any:
            numbered = torch.arange(x.shape[1])
            return (x + self.table[: x.shape[1]] + self.table[numbered + 1]) / x.shape[1]

    net = Positions().eval()
    spec = from_torch(net, torch.randn(2, 5, 4), dynamic_shapes="auto")
    assert isinstance(spec, TorchModel)
    assert spec.open_shapes == (("N", "L", 4),)
    assert [n.op for n in spec.nodes if n.op != "constant"] == ["add", "add", "mul"]
    assert distance(net, spec, torch.randn(3, 9, 4)) < 1e-6


def test_names_for_sizes_in_torch_exports_words() -> None:
    dim, net = torch.export.Dim, image_net()
    shapes = {"input": {0: "batch", 2: dim("height"), 3: dim.AUTO}}
    spec = from_torch(net, {"input": torch.randn(2, 3, 16, 24)}, dynamic_shapes=shapes)
    assert spec.inputs[0].shape == ("batch", 3, "height", "W")
    only = from_torch(net, torch.randn(2, 3, 16, 24), dynamic_shapes=({2: "height"},))
    assert only.inputs[0].shape == (2, 3, "height", 24)


def test_a_branch_on_a_size_is_kept_to() -> None:
    net = Fn(lambda x: x.tanh() if x.shape[1] > 4 else x.sigmoid()).eval()
    spec = from_torch(net, torch.randn(2, 6), dynamic_shapes="auto")
    assert spec.inputs[0].shape == ("N", 6)
    assert distance(net, spec, torch.randn(3, 9)) < 1e-6
    with pytest.raises(InputError, match="N = 3, L = 3 the module may compute something else"):
        bslite.run(spec, torch.randn(3, 3))


@pytest.mark.parametrize("kind", [nn.AvgPool2d, nn.MaxPool2d])
def test_windows_that_end_beyond_the_image_at_some_sizes(kind: Any) -> None:
    """torch asks whether the last window of ``ceil_mode`` starts inside, and traces the answer."""
    pool = kind(2, stride=3, ceil_mode=True)
    net = Fn(lambda x: nn.functional.interpolate(pool(x), size=x.shape[2:], mode="nearest") + x).eval()
    spec = from_torch(net, torch.randn(2, 4, 16, 40), dynamic_shapes="auto")
    assert distance(net, spec, torch.randn(1, 4, 17, 10)) < 1e-6
    with pytest.raises(InputError, match="L = 4, H = 24, W = 40 the module may compute something else"):
        bslite.run(spec, torch.randn(2, 4, 24, 40))


def test_a_size_that_the_module_fixes_is_named() -> None:
    net = nn.Linear(6, 5).eval()
    spec = from_torch(net, torch.randn(2, 4, 6), dynamic_shapes="auto")
    with pytest.raises(InputError, match="axis 2 is 7, should be 6"):
        bslite.run(spec, torch.randn(2, 4, 7))
    with pytest.warns(UserWarning, match="fixed at the example's size: width = 6"):
        from_torch(net, torch.randn(2, 4, 6), dynamic_shapes=({2: "width"},))


class Segments(nn.Module):  # type: ignore[misc]
    """A head of segmentation: pooled and strided branches brought back to the input's size."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.pooled = nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.Conv2d(4, 2, 1)

    def forward(self, x: Any) -> Any:
        y = self.down(x)
        pooled = self.pooled(nn.functional.adaptive_avg_pool2d(y, 3))
        pooled = nn.functional.interpolate(pooled, size=y.shape[2:], mode="nearest")
        y = torch.cat([y, pooled], 1)
        return nn.functional.interpolate(y, size=x.shape[2:], mode="bilinear", align_corners=False)


def test_sizes_that_one_graph_cannot_express_are_fixed_call_by_call() -> None:
    net = Segments().eval()
    spec = from_torch(net, torch.randn(1, 3, 16, 24), dynamic_shapes="auto")
    assert isinstance(spec, TorchModel)
    assert spec.open_shapes == (("N", 3, "H", "W"),)
    for shape in [(1, 3, 16, 24), (2, 3, 17, 10), (3, 3, 17, 10), (1, 3, 9, 9)]:
        assert distance(net, spec, torch.randn(shape)) < 1e-6
    assert len(spec.specialised) == 3
    model = bslite.compile(spec)
    assert str(model.inputs[0]) == "x: float32[N, 3, H, W]"
    assert str(model.outputs[0]) == "output: float32[N, 6, ?, ?]"
    assert model(torch.randn(1, 3, 20, 8))[0].shape == (1, 6, 20, 8)


def test_sizes_that_fit_are_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Segments().eval()
    spec = from_torch(net, torch.randn(1, 3, 16, 24), dynamic_shapes="auto")
    shapes = [(1, 3, 16, 24), (2, 3, 17, 10), (3, 3, 17, 10)]
    for shape in shapes:
        bslite.run(spec, torch.randn(shape))
    monkeypatch.setattr("bslite.frontends.torch.model.bound_to", None)
    for shape in shapes:
        assert distance(net, spec, torch.randn(shape)) < 1e-6


def test_models_for_other_sizes_are_bounded_and_share_packed_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    with_room(monkeypatch, 800)
    net = nn.Sequential(nn.Conv2d(3, 64, 5), nn.Conv2d(64, 3, 5, padding=2), Segments()).eval()
    spec = from_torch(net, torch.randn(1, 3, 16, 16), dynamic_shapes="auto")
    assert isinstance(spec, TorchModel)
    bslite.run(spec, torch.randn(1, 3, 16, 16))
    alone = memory(spec.base)["weights"]
    for n in range(14, 32):
        bslite.run(spec, torch.randn(1, 3, n, 16))
    specs = spec.specs()
    assert is_full(len(spec.nodes) for spec in specs[1:])
    assert 5 < len(specs) < 15
    assert memory(*specs)["weights"] < 2 * alone


@pytest.mark.parametrize(
    "function",
    [
        lambda x, p: torch.cat([x, x])[: x.shape[0]],
        lambda x, p: x * x.shape[0],
        lambda x, p: p.expand(-1, x.shape[0], -1).tanh() + x.sum(),
        lambda x, p: x[:1].repeat(1, x.shape[0], 1),  # as rows behind each other
        lambda x, p: torch.eye(4).repeat(x.shape[0], 1) + x.reshape(-1, 4)[:1],
        lambda x, p: x[0].relu().repeat(2, 3 * x.shape[0], 1).sin(),
    ],
)
def test_values_computed_from_the_batch(function: Any) -> None:
    torch.manual_seed(0)  # sums of some numbers are nearly zero
    net = Fn(function, 1, 1, 4).eval()
    spec = from_torch(net, torch.randn(2, 5, 4), dynamic_shapes="auto")
    assert all(distance(net, spec, torch.randn(n, 5, 4)) < 1e-6 for n in (1, 2, 5))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, p: torch.cat([x, x]).split([x.shape[0]] * 2)[0],
        lambda x, p: x.flatten().sort()[0].view(-1, 4) + p.sum(),
        lambda x, p: x + torch.arange(0.5, x.shape[0], 0.5).relu().sum(),
        lambda x, p: x.roll(x.shape[0] - 1, 0),
        lambda x, p: F.glu(torch.cat([x, x.flip(0)]), 0),
    ],
)
def test_operations_that_know_the_batch_as_a_number_only(function: Any) -> None:
    """One graph cannot express them with a free batch: it is fixed call by call."""
    net = Fn(function, 1, 1, 4).eval()
    spec = from_torch(net, torch.randn(3, 5, 4))
    assert isinstance(spec, TorchModel)
    assert all(distance(net, spec, torch.randn(n, 5, 4)) < 1e-6 for n in (2, 3, 7))
    fast = bslite.optimize(net, fallback="error")
    with torch.no_grad():
        for n in (2, 4, 3):
            x = torch.randn(n, 5, 4)
            torch.testing.assert_close(fast(x), net(x))


class Padded(nn.Module):  # type: ignore[name-defined]
    """Pads to whole strides, with numbers that are buffers, as EnCodec does."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(3, 4, 7, 4)
        self.register_buffer("kernel", torch.tensor(7), persistent=False)
        self.register_buffer("stride", torch.tensor(4), persistent=False)

    def forward(self, x: Any) -> Any:
        frames = torch.ceil((x.shape[-1] - self.kernel) / self.stride).to(torch.int64)
        return self.conv(F.pad(x, (0, frames * self.stride + self.kernel - x.shape[-1])))


def test_a_number_that_is_a_value_is_followed() -> None:
    """Also where the sizes of the model are computed from another."""

    class Scaled(Padded):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("times", torch.tensor(2), persistent=False)

        def forward(self, x: Any) -> Any:
            return super().forward(x) * self.times

    class Plain(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("times", torch.tensor(2), persistent=False)

        def forward(self, x: Any) -> Any:
            return x * self.times

    for made in (Scaled(), Plain()):
        module = made.eval()
        fast, x = bslite.optimize(module, fallback="silent", tune=False), torch.randn(2, 3, 50)
        for number in (2, 7):
            module.times.fill_(number)
            fast.times.fill_(number)
            with torch.no_grad():
                np.testing.assert_allclose(fast(x), module(x), rtol=1e-4, atol=1e-5)


def test_sizes_are_computed_from_buffers() -> None:
    module, x = Padded().eval(), torch.randn(2, 3, 50)
    names = [name for name, _ in module.named_buffers()]
    spec = from_torch(module, x)
    assert spec.inputs[0].shape == ("N", 3, 50)
    assert [name for name, _ in module.named_buffers()] == names
    assert type(module) is Padded
    assert distance(module, spec, x) < 1e-6
    fast = bslite.optimize(module, fallback="error", tune=False)
    for length in (50, 31, 33):
        x = torch.randn(2, 3, length)
        with torch.no_grad():
            np.testing.assert_allclose(fast(x), module(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}], ids=["one", "both ways"])
def test_the_length_of_recurrent_layers_stays_free(kind: str, options: dict[str, Any]) -> None:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = getattr(nn, kind)(6, 8, batch_first=True, **options)
            self.head = nn.Linear(16 if options else 8, 3)

        def forward(self, x: Any) -> Any:
            return self.head(self.layer(x)[0])

    net = Tagger().eval()
    spec = from_torch(net, torch.randn(2, 5, 6), dynamic_shapes="auto")
    assert not isinstance(spec, TorchModel)
    assert spec.inputs[0].shape == ("N", "L", 6)
    for shape in [(2, 5, 6), (1, 1, 6), (3, 40, 6)]:
        assert distance(net, spec, torch.randn(shape)) < 1e-6, shape


def test_the_length_of_an_encoder_and_a_decoder_stays_free() -> None:
    """With states handed on, a projection, and steps first."""

    class Handed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = nn.LSTM(6, 8, proj_size=4), nn.GRU(4, 4)

        def forward(self, x: Any) -> Any:
            y, (h, c) = self.encoder(x)
            return self.decoder(y.tanh(), h)[0] * c.mean()

    net = Handed().eval()
    spec = from_torch(net, torch.randn(5, 2, 6), dynamic_shapes="auto")
    for shape in [(5, 2, 6), (1, 3, 6), (40, 1, 6)]:
        assert distance(net, spec, torch.randn(shape)) < 1e-6, shape


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_the_length_of_pooled_signals_stays_free(ceil_mode: bool) -> None:
    layers = [nn.Conv1d(3, 8, 5), nn.ReLU(), nn.MaxPool1d(3, 2, 1, ceil_mode=ceil_mode), nn.Conv1d(8, 4, 3)]
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten()).eval()
    spec = from_torch(net, torch.randn(2, 3, 40), dynamic_shapes="auto")
    assert spec.inputs[0].shape == ("N", 3, "L")
    for shape in [(2, 3, 40), (1, 3, 41), (3, 3, 100)]:
        assert distance(net, spec, torch.randn(shape)) < 1e-6, shape


def test_images_whose_pixels_become_channels() -> None:
    layers = [nn.PixelUnshuffle(2), nn.Conv2d(12, 8, 3, padding=1), nn.ReLU(), nn.PixelShuffle(2)]
    net = nn.Sequential(*layers).eval()
    spec = from_torch(net, torch.randn(1, 3, 8, 12), dynamic_shapes="auto")
    for shape in [(1, 3, 8, 12), (2, 3, 8, 10), (1, 3, 2, 40)]:
        assert distance(net, spec, torch.randn(shape)) < 1e-6, shape
    with pytest.raises(InputError, match="N = 1, H = 7, W = 12 the module may compute something else"):
        bslite.run(spec, torch.randn(1, 3, 7, 12))


def test_long_recurrent_layers_are_traced_at_once() -> None:
    """Not step by step: the number of operations on stand-ins does not grow with the length."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counted(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.count += 1
            return func(*args, **(kwargs or {}))

    def operations(length: int) -> int:
        layer = nn.LSTM(4, 4).eval()
        with Counted() as counted:
            from_torch(layer, torch.randn(length, 2, 4))
        return counted.count

    assert operations(500) == operations(5)


@pytest.mark.parametrize(
    ("make", "shape", "counts"),
    [
        (lambda: nn.LSTM(4, 4), (3, 2, 4), {"tanh": 2 * 3}),
        (lambda: nn.MaxPool1d(3, 2), (2, 4, 9), {"max_pool2d_with_indices": 1}),
        (lambda: nn.PixelUnshuffle(2), (2, 4, 6, 8), {"permute": 1}),
    ],
    ids=["lstm", "pool", "unshuffle"],
)
def test_other_exports_are_as_torch_makes_them(make: Any, shape: Any, counts: dict[str, int]) -> None:
    """What is put in the place of torch's stand-ins answers to bslite's exports alone."""
    layer, x = make().eval(), torch.randn(shape)
    from_torch(layer, x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of an LSTM's list of weights
        program = torch.export.export(layer, (x,)).run_decompositions()
    names = [str(n.target) for n in program.graph.nodes if n.op == "call_function"]
    assert {name: names.count(f"aten.{name}.default") for name in counts} == counts
