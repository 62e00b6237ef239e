"""Small torch modules, one per operation that `from_torch` translates, and the bslite ops each becomes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

IMAGE = (6, 9, 8)  # [C, H, W]: sizes without the batch
TOKENS = (5, 12)


class Fn(nn.Module):  # type: ignore[name-defined]
    """A function as a module, with a parameter ``p`` it may use."""

    def __init__(self, function: Callable[..., Any], *shape: int) -> None:
        super().__init__()
        self.function = function
        if shape:
            self.p = nn.Parameter(torch.randn(shape))

    def forward(self, *xs: Any) -> Any:
        return self.function(*xs, self.p) if hasattr(self, "p") else self.function(*xs)


class Made(nn.Module):  # type: ignore[name-defined]
    """A module of these parts and attributes, with ``forward``, whose first argument it is."""

    def __init__(self, forward: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.function = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *xs: Any) -> Any:
        return self.function(self, *xs)


class Case(NamedTuple):
    """A module, its input's shape without the batch, and the ops it should become, constants left out."""

    label: str
    module: Callable[[], Any]
    shape: tuple[int, ...]
    ops: str


def fn(label: str, function: Callable[..., Any], shape: tuple[int, ...], ops: str, *param: int) -> Case:
    return Case(label, lambda: Fn(function, *param), shape, ops)


LAYERS = [
    Case("conv", lambda: nn.Conv2d(6, 4, 3, 2, 1), IMAGE, "conv2d"),
    Case(
        "conv grouped dilated",
        lambda: nn.Conv2d(6, 9, (1, 3), dilation=2, groups=3, bias=False),
        IMAGE,
        "conv2d",
    ),
    Case("conv same", lambda: nn.Conv2d(6, 4, (4, 3), padding="same", dilation=(1, 2)), IMAGE, "conv2d"),
    Case("conv valid", lambda: nn.Conv2d(6, 4, 3, padding="valid"), IMAGE, "conv2d"),
    Case("linear", lambda: nn.Linear(12, 7), TOKENS, "linear"),
    Case("linear, no bias", lambda: nn.Linear(12, 7, bias=False), (12,), "linear"),
    fn("addmm", lambda x, p: torch.addmm(p[0], x, p), (12,), "linear", 12, 12),
    fn("addmm, a matrix", lambda x, p: torch.addmm(x, x, p), (12,), "matmul add", 12, 12),
    fn("addmm, a row", lambda x, p: torch.addmm(p[:1], x, p), (12,), "matmul add", 12, 12),
    fn("mm", lambda x, p: x.mm(p), (12,), "linear", 12, 3),
    fn("mm, transposed parameter", lambda x, p: x @ p.t(), (12,), "linear", 3, 12),
    fn("bmm", lambda x: torch.bmm(x, x.transpose(1, 2)), TOKENS, "permute matmul"),
    fn("matmul", lambda x, p: p @ x, TOKENS, "matmul", 4, 5),
    Case("batch norm", lambda: nn.BatchNorm2d(6, eps=1e-3), IMAGE, "batch_norm"),
    Case("batch norm, not affine", lambda: nn.BatchNorm1d(12, affine=False), (12,), "batch_norm"),
    Case("layer norm", lambda: nn.LayerNorm(12), TOKENS, "layer_norm"),
    Case("layer norm, image", lambda: nn.LayerNorm(IMAGE, elementwise_affine=False), IMAGE, "layer_norm"),
    Case("group norm", lambda: nn.GroupNorm(3, 6), IMAGE, "group_norm"),
    Case("instance norm", lambda: nn.InstanceNorm2d(6, affine=True), IMAGE, "group_norm"),
    Case(
        "instance norm, tracked", lambda: nn.InstanceNorm2d(6, track_running_stats=True), IMAGE, "batch_norm"
    ),
    Case("lrn", lambda: nn.LocalResponseNorm(3, alpha=0.5, beta=0.6, k=2.0), IMAGE, "lrn"),
    Case("max pool", lambda: nn.MaxPool2d(3, 2, 1, ceil_mode=True), IMAGE, "max_pool2d"),
    Case("max pool dilated", lambda: nn.MaxPool2d((2, 3), dilation=2), IMAGE, "max_pool2d"),
    fn("max pool, indices unused", lambda x: F.max_pool2d(x, 2, return_indices=True)[0], IMAGE, "max_pool2d"),
    Case("avg pool", lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False), IMAGE, "avg_pool2d"),
    Case("avg pool, divisor", lambda: nn.AvgPool2d((2, 3), divisor_override=5), IMAGE, "avg_pool2d"),
    Case("adaptive avg pool", lambda: nn.AdaptiveAvgPool2d((2, None)), IMAGE, "adaptive_avg_pool2d"),
    Case("adaptive max pool", lambda: nn.AdaptiveMaxPool2d(3), IMAGE, "adaptive_max_pool2d"),
    Case("relu in place", lambda: nn.ReLU(inplace=True), IMAGE, "relu"),
    Case("relu6", lambda: nn.ReLU6(), IMAGE, "relu6"),
    Case("hardtanh", lambda: nn.Hardtanh(0, 6), IMAGE, "relu6"),
    fn("clamp", lambda x: x.clamp(0, 6), IMAGE, "clamp"),
    fn("clamp_min", lambda x: x.clamp_min(0), IMAGE, "clamp"),
    fn("clamp below", lambda x: x.clamp(min=0), IMAGE, "clamp"),
    Case("leaky relu", lambda: nn.LeakyReLU(0.2), IMAGE, "leaky_relu"),
    Case("rrelu", lambda: nn.RReLU(0.1, 0.5), IMAGE, "leaky_relu"),
    Case("elu", lambda: nn.ELU(0.7), IMAGE, "elu"),
    Case("gelu", lambda: nn.GELU(), IMAGE, "gelu"),
    Case("gelu tanh", lambda: nn.GELU("tanh"), IMAGE, "gelu"),
    Case("silu", lambda: nn.SiLU(), IMAGE, "silu"),
    Case("sigmoid", lambda: nn.Sigmoid(), IMAGE, "sigmoid"),
    Case("tanh", lambda: nn.Tanh(), IMAGE, "tanh"),
    Case("hardswish", lambda: nn.Hardswish(inplace=True), IMAGE, "hardswish"),
    Case("hardsigmoid", lambda: nn.Hardsigmoid(), IMAGE, "hardsigmoid"),
    Case("softmax", lambda: nn.Softmax(1), IMAGE, "softmax"),
    Case("log softmax", lambda: nn.LogSoftmax(-1), TOKENS, "log_softmax"),
    Case(
        "dropout", lambda: nn.Sequential(nn.Dropout(), nn.Tanh(), nn.Dropout2d(inplace=True)), IMAGE, "tanh"
    ),
    Case("nearest", lambda: nn.Upsample(scale_factor=2), IMAGE, "upsample"),
    Case("nearest to a size", lambda: nn.Upsample((13, 5)), IMAGE, "upsample"),
    Case("bilinear", lambda: nn.Upsample(scale_factor=(1.3, 2.0), mode="bilinear"), IMAGE, "upsample"),
    Case(
        "bilinear, corners",
        lambda: nn.Upsample((13, 5), mode="bilinear", align_corners=True),
        IMAGE,
        "upsample",
    ),
]

ARITHMETIC = [
    fn("add", lambda x, p: x + p, IMAGE, "add", 6, 1, 1),
    fn("add, alpha", lambda x: torch.add(x, x, alpha=0.3), IMAGE, "mul add"),
    fn("add a number", lambda x: 0.1 + x, IMAGE, "add"),
    fn("add in place", lambda x: (x * 2).add_(x, alpha=3), IMAGE, "mul mul add"),
    fn("sub", lambda x: x - x.transpose(2, 3).transpose(2, 3) * 3, IMAGE, "permute permute mul sub"),
    fn("sub a parameter", lambda x, p: x - p, IMAGE, "add", 6, 1, 1),
    fn("a number minus", lambda x: 1 - x, IMAGE, "sub"),
    fn("rsub", lambda x: torch.rsub(x, 2.0, alpha=3), IMAGE, "mul sub"),
    fn("mul", lambda x: x * x.sigmoid(), IMAGE, "sigmoid mul"),
    fn("mul a number", lambda x: x * -0.7, IMAGE, "mul"),
    fn("neg", lambda x: -x, IMAGE, "neg"),
    fn("square", lambda x: x.square() + x**2, IMAGE, "mul mul add"),
    fn("div by a number", lambda x: x / 3, IMAGE, "mul"),
    fn("div by a parameter", lambda x, p: x / p, IMAGE, "mul", 6, 1, 1),
    fn(
        "expand_as", lambda x: x * x.mean((2, 3), keepdim=True).expand_as(x), IMAGE, "adaptive_avg_pool2d mul"
    ),
    fn("expand a parameter", lambda x, p: x + p.expand_as(x), TOKENS, "add", 1, 12),
    fn("expand kept", lambda x: x[:, :, None].expand(-1, -1, 3), (12,), "reshape expand"),
    fn("mean", lambda x: x.mean((2, 3)), IMAGE, "adaptive_avg_pool2d flatten"),
    fn("mean, axes kept", lambda x: x.mean((-1, -2), keepdim=True), IMAGE, "adaptive_avg_pool2d"),
    fn("mean of tokens", lambda x: x.mean(1), TOKENS, "mean"),
    fn("mean of channels", lambda x: x.mean(1, keepdim=True), IMAGE, "mean"),
]

ELEMENTWISE = [
    fn("div", lambda x: x / (x.abs() + 1), IMAGE, "abs add div"),
    fn("a number over", lambda x: 2.0 / (x * x + 1), IMAGE, "mul add reciprocal mul"),
    fn(
        "div, floor",
        lambda x: torch.div(x, 0.7, rounding_mode="floor"),
        IMAGE,
        "fmod less less xor not_equal and sub div cast sub div trunc round mul equal where equal where",
    ),
    fn("div, trunc", lambda x: torch.div(x, 0.7, rounding_mode="trunc"), IMAGE, "div trunc"),
    fn("powers", lambda x: x**3 + x.abs() ** 0.5, IMAGE, "mul mul abs sqrt add"),
    fn("power of a value", lambda x: x.abs() ** x.sigmoid(), IMAGE, "abs sigmoid pow"),
    fn("a number to a power", lambda x: 2**x, IMAGE, "pow"),
    fn("a root's reciprocal", lambda x: (x * x + 1) ** -0.5, IMAGE, "mul add rsqrt"),
    fn("remainder", lambda x: x % 0.7, IMAGE, "remainder"),
    fn("fmod", lambda x: torch.fmod(x, 0.7), IMAGE, "fmod"),
    fn("maximum", lambda x, p: torch.maximum(x, p), IMAGE, "maximum", 6, 1, 1),
    fn("max of two", lambda x: torch.max(x, x.tanh()), IMAGE, "tanh maximum"),
    fn("minimum", lambda x, p: torch.minimum(p, x), IMAGE, "minimum", 8),
    fn("atan2", lambda x, p: torch.atan2(x, p), IMAGE, "atan2", 8),
    fn("logaddexp", lambda x, p: torch.logaddexp(x, p), IMAGE, "logaddexp", 8),
    fn(
        "hypot",
        lambda x, p: torch.hypot(x, p),
        IMAGE,
        "repeat_batch expand reshape reshape concat l2_norm",
        8,
    ),
    fn(
        "copysign",
        lambda x, p: torch.copysign(x, p),
        IMAGE,
        "abs reciprocal less less or neg where less where",
        8,
    ),
    fn("ldexp", lambda x, p: torch.ldexp(x, p), IMAGE, "exp2 mul", 8),
    fn("dist", lambda x: torch.dist(x, x.tanh()), IMAGE, "tanh sub l2_norm"),
    fn("sinc", lambda x: torch.sinc(x), IMAGE, "mul mul equal where sin div where"),
    fn("xlogy", lambda x: torch.xlogy(x, x.abs()), IMAGE, "abs less_equal isinf or equal and where log mul"),
    fn(
        "binary cross entropy",
        lambda x: F.binary_cross_entropy(x.sigmoid(), (x > 0).float()),
        IMAGE,
        "sigmoid greater cast binary_cross_entropy mean",
    ),
    fn(
        "count of what is not zero", lambda x: torch.linalg.vector_norm(x, 0, 1), TOKENS, "not_equal cast sum"
    ),
    fn("addcmul", lambda x: torch.addcmul(x, x, x, value=0.5), IMAGE, "mul mul add"),
    fn("addcdiv", lambda x: torch.addcdiv(x, x, x.abs() + 1), IMAGE, "abs add div add"),
    fn("lerp", lambda x: torch.lerp(x, x.tanh(), 0.3), IMAGE, "tanh sub mul add"),
    fn("clamp both", lambda x: x.clamp(-1, 0.5), IMAGE, "clamp"),
    fn("clamp above", lambda x: x.clamp_max(0.5), IMAGE, "clamp"),
    fn("clamp by values", lambda x, p: x.clamp(min=p, max=p + 1), IMAGE, "maximum minimum", 6, 1, 1),
    Case("hardtanh as it comes", lambda: nn.Hardtanh(), IMAGE, "clamp"),
    fn("analysis", lambda x: x.sin().exp().log1p().cos().atan(), IMAGE, "sin exp log1p cos atan"),
    fn("exp2", lambda x: torch.exp2(x), IMAGE, "exp2"),
    fn("rounding", lambda x: x.round() + x.floor() * x.ceil(), IMAGE, "round floor ceil mul add"),
    Case("selu", lambda: nn.SELU(), IMAGE, "selu"),
    Case("celu", lambda: nn.CELU(0.6), IMAGE, "celu"),
    Case("softplus", lambda: nn.Softplus(2, 3), IMAGE, "softplus"),
    Case("softsign", lambda: nn.Softsign(), IMAGE, "abs add div"),
    Case("mish", lambda: nn.Mish(), IMAGE, "mish"),
    Case("log sigmoid", lambda: nn.LogSigmoid(), IMAGE, "logsigmoid"),
    Case("threshold", lambda: nn.Threshold(0.3, -1.0), IMAGE, "threshold"),
    Case("hardshrink", lambda: nn.Hardshrink(0.3), IMAGE, "shrink"),
    Case("softshrink", lambda: nn.Softshrink(0.3), IMAGE, "shrink"),
    Case("tanhshrink", lambda: nn.Tanhshrink(), IMAGE, "tanh sub"),
    Case("prelu", lambda: nn.PReLU(), IMAGE, "prelu"),
    Case("prelu, per channel", lambda: nn.PReLU(6), IMAGE, "prelu"),
    Case("glu", lambda: nn.GLU(1), IMAGE, "slice slice sigmoid mul"),
    fn("where", lambda x: torch.where(x > 0.5, x, -1.0), IMAGE, "greater where"),
    fn("where of parameters", lambda x, p: torch.where(x < p, p, x), IMAGE, "less where", 8),
    fn("masked_fill", lambda x: x.masked_fill(x <= 0, float("-inf")).exp(), IMAGE, "less_equal where exp"),
    fn("logic", lambda x: ((x > 1) | ~(x < 0)).float(), IMAGE, "greater less not or cast"),
    fn("bool times float", lambda x: (x >= 0) * x, IMAGE, "greater_equal cast mul"),
    fn("isfinite", lambda x: x.log().isfinite().float(), IMAGE, "log isnan isinf or not cast"),
    fn("sum of everything but the batch", lambda x: (x * x).sum((1, 2, 3)), IMAGE, "mul sum"),
    fn("sum, kept", lambda x: x.sum(-1, keepdim=True), TOKENS, "sum"),
    fn("amax, amin", lambda x: x.amax(1) - x.amin((1,)), IMAGE, "amax amin sub"),
    fn("max along", lambda x: x.max(2)[0], IMAGE, "amax"),
    fn("argmax", lambda x: x.argmax(-1).float(), TOKENS, "argmax cast"),
    fn("max and its place", lambda x: x.max(1)[0] + x.max(1)[1], IMAGE, "amax argmax cast add"),
    fn("count", lambda x: (x > 0).sum(-1).float(), TOKENS, "greater cast sum cast"),
    fn("any", lambda x: (x > 2).any(1).float(), TOKENS, "greater amax cast"),
    fn("all", lambda x: (x > -2).all(-1, keepdim=True).float(), TOKENS, "greater amin cast"),
    fn("var", lambda x: x.var(-1), TOKENS, "var"),
    fn("std", lambda x: x.std((1, 2), correction=0, keepdim=True), TOKENS, "std"),
    fn("var_mean", lambda x: torch.add(*torch.var_mean(x, 1)), TOKENS, "var mean add"),
    fn("norm", lambda x: x / x.norm(dim=-1, keepdim=True), TOKENS, "l2_norm div"),
    fn(
        "vector norms",
        lambda x: torch.linalg.vector_norm(x, 3, 1),
        TOKENS,
        "abs pow sum equal where pow where",
    ),
    fn("logsumexp", lambda x: x.logsumexp(1), TOKENS, "logsumexp"),
    fn("cumsum", lambda x: x.cumsum(1), TOKENS, "cumsum"),
    fn("prod", lambda x: x.prod(2), TOKENS, "prod"),
]

MOVES = [
    fn("view, batch asked", lambda x: x.view(x.size(0), -1), IMAGE, "flatten"),
    fn("view, batch inferred", lambda x: x.view(-1, 6, 72), IMAGE, "flatten"),
    fn("view, split", lambda x: x.view(x.shape[0], 2, 3, 9, 8), IMAGE, "reshape"),
    fn(
        "batch merged and split",
        lambda x: x.reshape(-1, 12).tanh().view(-1, 5, 12),
        TOKENS,
        "reshape tanh reshape",
    ),
    fn(
        "windows",
        lambda x: x.reshape(-1, 6, 3, 3, 8).permute(0, 2, 1, 3, 4).reshape(-1, 6, 3, 8),
        IMAGE,
        "reshape permute reshape",
    ),
    fn("two batch axes", lambda x: (x @ x.t()).unsqueeze(1), (12,), "permute matmul reshape"),
    fn("flatten", lambda x: x.flatten(2), IMAGE, "flatten"),
    fn("flatten all", lambda x: x.flatten(), TOKENS, "reshape"),
    Case(
        "Flatten and Unflatten",
        lambda: nn.Sequential(nn.Flatten(), nn.Unflatten(1, IMAGE)),
        IMAGE,
        "flatten reshape",
    ),
    fn("unsqueeze, squeeze", lambda x: x.unsqueeze(1).tanh().squeeze(1), TOKENS, "reshape tanh flatten"),
    fn("permute", lambda x: x.permute(0, 2, 3, 1), IMAGE, "permute"),
    fn("transpose", lambda x: x.transpose(-1, 1), IMAGE, "permute"),
    fn("t", lambda x: x.t(), (12,), "permute"),
    fn("movedim", lambda x: x.movedim(1, -1).swapaxes(1, 2), IMAGE, "permute permute"),
    fn("chunk", lambda x: torch.cat(x.chunk(4, 1)[::-1], 1), IMAGE, "slice slice slice concat"),
    fn("split", lambda x: x.split(4, 1)[1], IMAGE, "slice"),
    fn("split with sizes", lambda x: x.split([1, 2, 3], 1)[1], IMAGE, "slice"),
    fn("select", lambda x: x[:, -1] + x[:, 0], IMAGE, "slice flatten slice flatten add"),
    fn("select, last axis", lambda x: x[..., 2], IMAGE, "slice flatten"),
    fn("unbind", lambda x: x.unbind(2)[1], IMAGE, "slice flatten"),
    fn("narrow", lambda x: x.narrow(1, 2, 3).narrow(3, -2, 2), IMAGE, "slice slice"),
    fn("slices", lambda x: x[:, :, 1:-1, ::2], IMAGE, "slice slice"),
    fn("cat", lambda x: torch.cat([x, x.tanh(), x], -1), IMAGE, "tanh concat"),
    fn("stack", lambda x: torch.stack([x, -x], 1), IMAGE, "neg reshape reshape concat"),
    fn("pad", lambda x: F.pad(x, (1, 2, 0, 3), value=-1.5), IMAGE, "pad"),
    Case("ZeroPad2d", lambda: nn.ZeroPad2d((0, 1, 2, 3)), IMAGE, "pad"),
    Case("pixel shuffle", lambda: nn.PixelShuffle(2), (8, 3, 5), "reshape permute reshape"),
    Case("pixel unshuffle", lambda: nn.PixelUnshuffle(2), (3, 4, 6), "reshape permute flatten"),
    Case("channel shuffle", lambda: nn.ChannelShuffle(3), IMAGE, "reshape permute flatten"),
    fn("copies", lambda x: x.contiguous().clone().to(torch.float32).float().tanh(), IMAGE, "tanh"),
    fn("detached", lambda x: x.detach().tanh(), IMAGE, "stop_gradient tanh"),
]

HEADS = (4, 5, 6)  # [heads, tokens, features of one]


class SelfAttention(nn.Module):
    """nn.MultiheadAttention of tokens with themselves, the weights asked for or not, with a mask or not."""

    def __init__(self, weights: bool, mask: bool = False) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(12, 3, batch_first=True)
        self.weights = weights
        self.register_buffer("mask", torch.randn(5, 5) if mask else None)

    def forward(self, x: Any) -> Any:
        return self.attention(x, x, x, need_weights=self.weights, attn_mask=self.mask)[0]


def attend(**more: Any) -> Callable[..., Any]:
    return lambda x: F.scaled_dot_product_attention(x, x.tanh(), x.sigmoid(), **more)


ATTENTION = [
    fn("attention", attend(), HEADS, "tanh sigmoid attention"),
    fn("attention, causal", attend(is_causal=True), HEADS, "tanh sigmoid attention"),
    fn("attention, scaled", attend(scale=0.1), HEADS, "tanh sigmoid attention"),
    fn(
        "attention, masked",
        lambda x, p: F.scaled_dot_product_attention(x, x, x, p),
        HEADS, "attention", 5, 5,
    ),
    fn(
        "attention, bool mask",
        lambda x, p: F.scaled_dot_product_attention(x, x, x, p > 0),
        HEADS, "attention", 1, 5, 5,
    ),
    fn(
        "attention, grouped heads",
        lambda x: F.scaled_dot_product_attention(x, x[:, :2], x[:, 2:], enable_gqa=True),
        HEADS, "slice slice attention",
    ),
    fn("baddbmm", lambda x, p: torch.baddbmm(p, x, x.mT), TOKENS, "permute matmul add", 5, 5),
    fn(
        "einsum, scores", lambda x: torch.einsum("b h i d, b h j d -> b h i j", x, x), HEADS, "permute matmul"
    ),
    fn("einsum, values", lambda x: torch.einsum("bhid,bhdj->bihj", x, x.mT), HEADS,
       "permute matmul permute"),
    fn("einsum, two letters summed", lambda x: torch.einsum("nabc,nxbc->nxa", x, x), HEADS,
       "flatten permute flatten matmul permute"),
    fn("roll", lambda x: x.roll((2, -1), (1, 3)), IMAGE, "roll"),
    fn("normalize", lambda x: F.normalize(x, dim=-1) + F.normalize(x, p=2, dim=1, eps=2.0), IMAGE,
       "normalize normalize add"),
    Case("rms norm", lambda: nn.RMSNorm(12), TOKENS, "rms_norm"),
    Case("rms norm, eps", lambda: nn.RMSNorm((5, 12), eps=0.1, elementwise_affine=False), TOKENS, "rms_norm"),
    fn(
        "a token for every batch element",
        lambda x, p: torch.cat([p.expand(x.shape[0], -1, -1), x], 1),
        TOKENS, "repeat_batch concat", 1, 1, 12,
    ),
    fn(
        "a slice assigned", lambda x: assigned(x), IMAGE,
        "tanh slice slice slice slice concat slice slice concat",
    ),
]  # fmt: skip
MODULES_OF_ATTENTION = {
    "MultiheadAttention": lambda: SelfAttention(weights=False),
    "MultiheadAttention with weights": lambda: SelfAttention(weights=True),
    "MultiheadAttention, masked": lambda: SelfAttention(weights=False, mask=True),
    "MultiheadAttention with weights, masked": lambda: SelfAttention(weights=True, mask=True),
    "TransformerEncoder": lambda: encoder(activation="gelu"),
    "TransformerEncoder, norm first": lambda: encoder(norm_first=True),
}


def encoder(**how: Any) -> Any:
    layer = nn.TransformerEncoderLayer(12, 3, 20, batch_first=True, **how)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def assigned(x: Any) -> Any:
    """A tensor with a part of it written over."""
    y = x.tanh()
    y[:, :, 2:5, 1:] = x[:, :, 2:5, 1:]
    return y


CASES = [*LAYERS, *ATTENTION, *ARITHMETIC, *ELEMENTWISE, *MOVES]
