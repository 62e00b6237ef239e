"""Every operation `from_torch` knows, alone, against torch: one spec, run at two batch sizes."""

from typing import Any

import numpy as np
import pytest
from support.torch_modules import CASES, IMAGE, Case, F, Fn, fn, nn, torch

import bslite
from bslite import UnsupportedError, from_torch, reference

SIGNAL, VOLUME = (6, 19), (6, 5, 9, 8)
#: Convolutions, transposed ones, pools and norms along 1 to 3 axes.
WINDOWS = [
    Case("conv1d", lambda: nn.Conv1d(6, 4, 3, 2, 1), SIGNAL, "conv1d"),
    Case("conv1d, grouped, same", lambda: nn.Conv1d(6, 9, 4, padding="same", groups=3), SIGNAL, "conv1d"),
    Case("conv1d, valid", lambda: nn.Conv1d(6, 4, 3, padding="valid", dilation=2), SIGNAL, "conv1d"),
    Case("conv3d", lambda: nn.Conv3d(6, 4, 3, (1, 2, 2), 1, bias=False), VOLUME, "conv3d"),
    Case("conv3d, same", lambda: nn.Conv3d(6, 4, (2, 3, 4), padding="same"), VOLUME, "conv3d"),
    Case("conv1d, transposed", lambda: nn.ConvTranspose1d(6, 4, 4, 2, 1), SIGNAL, "conv_transpose1d"),
    Case(
        "conv2d, transposed",
        lambda: nn.ConvTranspose2d(6, 4, 3, (2, 3), 1, (1, 2), groups=2, dilation=(2, 1)),
        IMAGE,
        "conv_transpose2d",
    ),
    Case(
        "conv3d, transposed", lambda: nn.ConvTranspose3d(6, 4, 2, 2, bias=False), VOLUME, "conv_transpose3d"
    ),
    fn(
        "convolution",
        lambda x, p: torch.convolution(x, p, None, [2], [1], [1], True, [1], 1),
        SIGNAL,
        "conv_transpose1d",
        6,
        4,
        3,
    ),
    Case("max pool 1d", lambda: nn.MaxPool1d(3, 2, 1, ceil_mode=True), SIGNAL, "max_pool1d"),
    Case("max pool 3d", lambda: nn.MaxPool3d((1, 3, 3), 2, (0, 1, 1)), VOLUME, "max_pool3d"),
    fn(
        "max pool 3d, indices unused",
        lambda x: F.max_pool3d(x, 2, return_indices=True)[0],
        VOLUME,
        "max_pool3d",
    ),
    Case("avg pool 1d", lambda: nn.AvgPool1d(3, 2, 1, count_include_pad=False), SIGNAL, "avg_pool1d"),
    Case("avg pool 3d", lambda: nn.AvgPool3d(2, divisor_override=5), VOLUME, "avg_pool3d"),
    Case("adaptive avg pool 3d", lambda: nn.AdaptiveAvgPool3d((2, None, 1)), VOLUME, "adaptive_avg_pool3d"),
    Case("adaptive max pool 3d", lambda: nn.AdaptiveMaxPool3d(3), VOLUME, "adaptive_max_pool3d"),
    Case("adaptive max pool 1d", lambda: nn.AdaptiveMaxPool1d(4), SIGNAL, "adaptive_max_pool1d"),
    Case("adaptive avg pool 1d", lambda: nn.AdaptiveAvgPool1d(4), SIGNAL, "adaptive_avg_pool1d"),
    Case("batch norm 1d", lambda: nn.BatchNorm1d(6), SIGNAL, "batch_norm"),
    Case("batch norm 3d", lambda: nn.BatchNorm3d(6), VOLUME, "batch_norm"),
    Case("group norm 3d", lambda: nn.GroupNorm(3, 6), VOLUME, "group_norm"),
    Case("instance norm 1d", lambda: nn.InstanceNorm1d(6), SIGNAL, "group_norm"),
    Case("instance norm 3d", lambda: nn.InstanceNorm3d(6, affine=True), VOLUME, "group_norm"),
    Case(
        "instance norm 3d, tracked",
        lambda: nn.InstanceNorm3d(6, track_running_stats=True),
        VOLUME,
        "batch_norm",
    ),
]


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")  # torch's, of its own speed
@pytest.mark.parametrize("case", [*CASES, *WINDOWS], ids=lambda case: case.label)
def test_agrees_with_torch(case: Case) -> None:
    torch.manual_seed(0)
    module = case.module().eval()
    for buffer in module.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 2.0)
    spec = from_torch(module, torch.randn(1, *case.shape))
    assert spec.inputs[0].shape == ("N", *case.shape)
    assert " ".join(n.op for n in spec.nodes if n.op != "constant") == case.ops
    for batch in (1, 3):
        x = torch.randn(batch, *case.shape) * 2
        with torch.no_grad():
            want = module(x.clone()).numpy()  # some work in place
        (got,) = reference.run(spec, [x.numpy()], np.float32)
        assert got.shape == want.shape
        assert np.linalg.norm(got - want) <= 2e-6 * np.linalg.norm(want) + 1e-30


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: F.avg_pool3d(x, 2), (3, 4, 5, 6)),
        (lambda x: F.max_pool1d(x, 2), (3, 4)),
        (lambda x: F.adaptive_avg_pool3d(x, 1), (3, 4, 5, 6)),
    ],
)
def test_without_a_batch_it_is_one_image(function: Any, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    spec, want = from_torch(Fn(function).eval(), x), function(x).numpy()
    (got,) = reference.run(spec, [x.numpy()], np.float32)
    assert got.shape == want.shape
    assert np.linalg.norm(got - want) <= 2e-6 * np.linalg.norm(want)


def test_indices_of_a_maximum_are_refused() -> None:
    """Where windows differ in size."""
    with pytest.raises(UnsupportedError, match="more than its first result is used"):
        from_torch(
            Fn(lambda x: F.adaptive_max_pool2d(x, 2, return_indices=True)).eval(), torch.randn(1, 3, 5, 5)
        )


@pytest.mark.parametrize(
    ("axes", "window"),
    [
        (1, {"kernel_size": 3, "stride": 2, "padding": 1}),
        (2, {"kernel_size": 2}),
        (2, {"kernel_size": (2, 3), "stride": 1, "padding": (0, 1), "dilation": (1, 2)}),
        (2, {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}),
        (3, {"kernel_size": (1, 3, 2), "stride": 2, "padding": (0, 1, 1)}),
    ],
)
@pytest.mark.parametrize("batched", [True, False])
def test_places_of_maxima(axes: int, window: dict[str, Any], batched: bool) -> None:
    pool = getattr(F, f"max_pool{axes}d")
    module = Fn(lambda x: pool(x, **window, return_indices=True)).eval()
    x = torch.randn((4, 3, 7, 9, 8, 6)[: axes + 2])
    x[1] = -float("inf")  # the first of equals, and no place outside
    x = x if batched else x[1]
    made = bslite.run(from_torch(module, x), x.numpy())
    for got, want in zip(made, module(x), strict=True):
        assert got.dtype == want.numpy().dtype
        assert np.array_equal(got, want.numpy())


@pytest.mark.parametrize("kernel", [2, 3, (2, 3)], ids=str)
@pytest.mark.parametrize("stride", [None, 1, 2], ids=str)
@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_places_of_maxima_in_images(
    kernel: Any, stride: Any, padding: int, dilation: int, ceil_mode: bool
) -> None:
    def forward(x: Any) -> Any:
        return F.max_pool2d(x, kernel, stride, padding, dilation, ceil_mode, return_indices=True)

    module, x = Fn(forward).eval(), torch.randn(2, 3, 11, 13)
    for got, want in zip(bslite.run(from_torch(module, x), x.numpy()), module(x), strict=True):
        assert np.array_equal(got, want.numpy())


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("batched", [True, False])
def test_what_a_pool_took_is_put_back(axes: int, batched: bool) -> None:
    pool, unpool = getattr(F, f"max_pool{axes}d"), getattr(F, f"max_unpool{axes}d")

    def forward(x: Any) -> Any:
        y, places = pool(x, 2, return_indices=True)
        return unpool(2 * y, places, 2, output_size=x.shape[-axes:])

    module, x = Fn(forward).eval(), torch.randn((4, 3, 7, 6, 9)[: axes + 2])
    x = x if batched else x[0]
    spec = from_torch(module, x)
    batches = [x, torch.cat([x, x])] if batched else [x]
    for x in batches:
        assert np.array_equal(bslite.run(spec, x.numpy()), module(x).numpy())


def test_errors_name_the_layer() -> None:
    spec = from_torch(nn.Sequential(nn.Conv3d(3, 4, 3)).eval(), torch.randn(1, 3, 5, 6, 7))
    with pytest.raises(bslite.BsliteError, match=r"layer '0'.*conv3d|expected"):
        bslite.run(spec, torch.randn(1, 3, 2, 6, 7))


def test_a_place_before_the_first_is_an_error() -> None:
    x, places = torch.randn(1, 1, 2, 2), torch.tensor([[[[0, 2], [8, -1]]]])
    module = Fn(lambda x, i: F.max_unpool2d(x, i, 2)).eval()
    spec = from_torch(module, (x, places.abs()))
    with pytest.raises(bslite.BsliteError, match="16"):
        bslite.run(spec, [x.numpy(), places.numpy()])
    want = module(x, places.abs()).numpy()
    assert np.array_equal(bslite.run(spec, [x.numpy(), places.abs().numpy()]), want)


@pytest.mark.parametrize("reduce", ["sum", "amax", "amin", "prod", "mean"])
@pytest.mark.parametrize("include_self", [True, False])
def test_scattered_rows_of_any_batch(reduce: str, include_self: bool) -> None:
    def forward(x: Any, index: Any) -> Any:
        into = x.new_full((x.shape[0], 7), 0.5)
        made = into.scatter_reduce(1, index, x, reduce=reduce, include_self=include_self)
        return made, into.scatter(1, index, 2.5)

    def inputs(batch: int) -> tuple[Any, Any]:
        return torch.randn(batch, 9), torch.randint(0, 7, (batch, 9))

    module = Fn(forward).eval()
    spec = from_torch(module, inputs(2))
    for batch in (1, 2, 5):
        given = inputs(batch)
        for got, want in zip(bslite.run(spec, [x.numpy() for x in given]), module(*given), strict=True):
            np.testing.assert_allclose(got, want.numpy(), rtol=1e-6)


@pytest.mark.parametrize("divisor", [0.1, -0.3, 2.0, 0.25, None])
@pytest.mark.parametrize("divide", [torch.floor_divide, lambda a, b: torch.div(a, b, rounding_mode="floor")])
def test_quotients_are_floored_before_they_are_rounded(divisor: Any, divide: Any) -> None:
    """2.8 // 0.1 is 27, though 2.8 / 0.1 rounds to 28."""
    tenths = torch.arange(-400, 401).reshape(9, 89) / 10
    x = torch.cat([tenths, tenths[:, :6] * torch.inf, torch.tensor([1.5, -0.0, torch.nan]).expand(9, 3)], 1)
    if divisor in (2.0, 0.25):  # whose quotients are exact, and infinite ones stay so
        x = tenths
    others = [x.flip(0)] if divisor is None else []
    net = Fn((lambda a, b: divide(a, b)) if divisor is None else (lambda a: divide(a, divisor))).eval()
    spec, want = from_torch(net, (x, *others)), net(x, *others)
    for backend in (None, "reference"):
        got = bslite.run(spec, [x.numpy(), *(y.numpy() for y in others)], backend=backend)
        np.testing.assert_array_equal(got, want.numpy())
        zeros = want.numpy() == 0
        np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(want.numpy()[zeros]))
