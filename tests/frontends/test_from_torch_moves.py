"""Movement from torch: builders alone, against torch, by the reference and by the engine."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.torch_modules import Fn, torch

import bslite
from bslite import from_torch

F = torch.nn.functional
IMAGE, TOKENS = (6, 9, 8), (5, 12)
ROWS = torch.tensor([[3, 0, 1], [4, 4, 2]])
COLUMNS = torch.tensor([[7, 0, 1], [2, 2, 5]])

MASK = torch.tensor([True, False, True, True, False])


def assigned(x: Any, places: Any, value: Any) -> Any:
    """A copy of x with ``x[places] = value``."""
    x = x.clone()
    x[places] = value
    return x


def filled(x: Any, value: Any) -> Any:
    """A copy of x with a run of rows of one value."""
    x = x.clone()
    x[:, 1:3].fill_(value)
    return x


def back(order: Any) -> Any:
    """The place of each number in ``order``."""
    places = torch.empty_like(order)
    return places.scatter_(1, order, torch.arange(order.shape[1]).expand(order.shape))


def at_most(x: Any, most: int) -> Any:
    """x or ``most``, whichever is smaller, as T5 writes it."""
    return torch.min(x, torch.full_like(x, most))


#: shape -> label -> function of x [N, *shape], the ops it becomes (constants left out)
CASES: dict[tuple[int, ...], dict[str, tuple[Callable[..., Any], str]]] = {
    IMAGE: {
        "roll": (lambda x: torch.roll(x, (-1, 2), (2, 3)), "roll"),
        "flip": (lambda x: x.flip(1, 3), "slice slice"),
        "repeat": (lambda x: x.repeat(1, 1, 2, 3), "tile"),
        "repeat, new axis": (lambda x: x.repeat(2, 1, 1, 1, 1)[1], "reshape tile slice reshape"),
        "movedim": (lambda x: x.movedim((1, 3), (3, 2)), "permute"),
        "tril": (lambda x: x.tril(2), "trilu"),
        "pad reflect": (lambda x: F.pad(x, (2, 1, 0, 3), "reflect"), "pad"),
        "pad replicate": (lambda x: F.pad(x, (2, 1, 0, 3), "replicate"), "pad"),
        "pad circular": (lambda x: F.pad(x, (2, 1, 0, 3), "circular"), "pad"),
        "pad, cut": (lambda x: F.pad(x, (-2, 1, 0, -3), value=2.0), "pad"),
        "indices apart": (lambda x: x[:, ROWS, :, COLUMNS], "permute gather_nd"),
        "index_put, apart": (
            lambda x: assigned(
                x, (slice(None), ROWS[0], slice(None), ROWS[1]), x[:, 0, :, :3].permute(2, 0, 1)
            ),
            "slice flatten slice permute permute scatter_nd permute",
        ),
        "unfold": (lambda x: F.unfold(x, (2, 3), (2, 1), (1, 0), (1, 2)), "unfold"),
        "grid_sample": (
            lambda x: F.grid_sample(x, x[:, :2].mT.permute(0, 2, 3, 1), align_corners=False),
            "slice permute permute grid_sample",
        ),
        "grid_sample, mirrored": (
            lambda x: F.grid_sample(x, x[:, :2].permute(0, 2, 3, 1), "bicubic", "reflection", True),
            "slice permute grid_sample",
        ),
        "grid_sample of a volume": (
            lambda x: F.grid_sample(
                x[:, None], x[:, :3, None].permute(0, 2, 3, 4, 1), "nearest", "border", align_corners=False
            ),
            "",
        ),
        "lp_pool2d": (
            lambda x: F.lp_pool2d(x, 2.0, (2, 3), stride=1),
            "mul avg_pool2d sign abs relu mul mul sqrt",
        ),
        "nearest of a volume": (
            lambda x: F.interpolate(x[:, None], scale_factor=(2, 1.5, 1)),
            "reshape resize",
        ),
        "nearest-exact": (lambda x: F.interpolate(x, (5, 13), mode="nearest-exact"), "resize"),
        "bicubic": (lambda x: F.interpolate(x, (5, 13), mode="bicubic"), "resize"),
        "bicubic by a scale": (lambda x: F.interpolate(x, scale_factor=1.3, mode="bicubic"), "resize"),
        "trilinear": (lambda x: F.interpolate(x[:, None], (4, 5, 13), mode="trilinear"), "reshape resize"),
        "bilinear, antialias": (
            lambda x: F.interpolate(x, (4, 11), mode="bilinear", antialias=True),
            "resize",
        ),
        "bicubic, antialias": (lambda x: F.interpolate(x, (4, 11), mode="bicubic", antialias=True), "resize"),
        "einsum, two axes": (
            lambda x: torch.einsum("bchw,bdhw->bdc", x, x),
            "flatten permute flatten matmul permute",
        ),
        "einsum, heads": (lambda x: torch.einsum("bhid,bhjd->bhij", x, x), "permute matmul"),
    },
    TOKENS: {
        "tile": (lambda x: x.tile(2, 3), "tile"),
        "repeat_interleave": (lambda x: x.repeat_interleave(3, 2), "reshape expand flatten"),
        "expand": (lambda x: x[:, :, None].expand(-1, -1, 4, -1).tanh(), "reshape expand tanh"),
        "triu": (lambda x: x.triu(-1), "trilu"),
        "gather": (lambda x: x.gather(1, x.argsort(1)[:, :2]), "topk slice gather_elements"),
        "one index": (lambda x: x[:, ROWS], "gather"),
        "two indices": (lambda x: x[:, ROWS, COLUMNS], "permute gather_nd permute"),
        "indices in front": (lambda x: x.permute(1, 2, 0)[ROWS, COLUMNS], "permute gather_nd"),
        "topk": (lambda x: torch.topk(x, 3)[0], "topk gather_elements"),
        "topk, indices": (lambda x: torch.topk(x, 3, 1, False)[1].float(), "topk cast"),
        "sort": (lambda x: x.sort(1, descending=True)[0], "topk gather_elements"),
        "argsort": (lambda x: x.argsort(-1).float(), "topk cast"),
        "one_hot": (lambda x: F.one_hot(x.argsort(-1), 12).float(), "topk one_hot cast"),
        "scatter_add": (
            lambda x: x.scatter_add(2, x.argsort(-1)[:, :, :4], x),
            "topk slice slice scatter_elements",
        ),
        "one position replaced": (
            lambda x: assigned(x, (slice(None), -2), x[:, 0] * 2),
            "slice flatten mul reshape slice slice concat",
        ),
        "the first position replaced": (
            lambda x: x.select_scatter(x[:, :, 3], 2, 0),
            "slice flatten reshape slice concat",
        ),
        "every third position replaced": (
            lambda x: x.slice_scatter(x[:, :, 1:4], 2, -10, None, 4),
            "slice concat gather",
        ),
        "every second position replaced, from the start": (
            lambda x: x.slice_scatter(x[:, 1::2], 1, -99, -1, 2),
            "slice concat gather",
        ),
        "a run filled": (lambda x: filled(x, -1.0), ""),
        "a run filled, computed": (lambda x: filled(x, x.mean() * 2), ""),
        "index_put, one value": (lambda x: assigned(x, (slice(None), ROWS[0]), 0.5), "where"),
        "index_put, known mask": (lambda x: assigned(x, (slice(None), MASK), -1.0), "where"),
        "index_put, mask": (lambda x: assigned(x, x > 0.5, 2.0), "greater where"),
        "index_put, rows by a condition": (
            lambda x: assigned(x, x[..., 0] > 0.5, x[0, 0] * 2),
            "slice flatten greater slice reshape slice reshape mul reshape where",
        ),
        "index_put, a column by a condition": (
            lambda x: assigned(x, (slice(None), x[0, :, 0] > 0.5, slice(1, 9)), x[:, :1, 1:9].tanh()),
            "",
        ),
        "masked_scatter": (lambda x: x.masked_scatter(x > 0.5, x.exp()), ""),
        "masked_scatter, rows": (lambda x: (x + 1).masked_scatter(x[..., :1] > 0, x), ""),
        "scatter_reduce": (lambda x: x.scatter_reduce(1, (x.argsort(1) % 2)[:, :, :9], x * 2, "amin"), ""),
        "scatter_reduce, without what was there": (
            lambda x: (
                x.scatter_reduce(2, x.argsort(-1) // 4, x - 3, "amax", include_self=False)
                + x.scatter_reduce(2, x.argsort(-1) // 4, x + 3, "prod", include_self=False)
            ),
            "",
        ),
        "scatter_reduce of numbers, without what was there": (
            lambda x: (
                x.argsort(-1)
                .scatter_reduce(1, x.argsort(1) // 2, x.argsort(-1), "amin", include_self=False)
                .float()
            ),
            "",
        ),
        "scatter_reduce, means": (
            lambda x: (
                x.scatter_reduce(2, x.argsort(-1) // 4, x * x, "mean")
                + x.scatter_reduce(1, x.argsort(1) // 2, x.exp(), "mean", include_self=False)
            ),
            "",
        ),
        "index_put, values": (
            lambda x: assigned(x, (slice(None), ROWS, COLUMNS), x[:, :2, :3] * 2),
            "slice slice mul permute permute scatter_nd permute",
        ),
        "index_put, accumulated": (
            lambda x: x[0].index_put((torch.tensor([1, 1, 0]),), x[0, :3], accumulate=True),
            "slice reshape slice reshape slice scatter_nd",
        ),
        "index_add": (
            lambda x: x.index_add(1, torch.tensor([1, 4, 1]), x[:, :3], alpha=-2),
            "slice mul permute permute scatter_nd permute",
        ),
        "index_copy": (
            lambda x: x.index_copy(2, torch.tensor([7, 0]), x[:, :, :2]),
            "slice permute permute scatter_nd permute",
        ),
        "index_fill": (lambda x: x.index_fill(2, torch.tensor([7, -2]), 2.5), "where"),
        "index_fill by a computed index": (lambda x: x[0].index_fill(1, x.argsort(-1)[0, 0, :2], 2.5), ""),
        "cummax": (lambda x: x.cummax(2)[0] + x.cummin(1)[0], ""),
        "cumprod": (lambda x: x.cumprod(1), "cumprod"),
        "logcumsumexp": (lambda x: x.logcumsumexp(-1), "logcumsumexp"),
        "affine_grid": (
            lambda x: F.affine_grid(x[:, :2, :3], (x.shape[0], 3, 4, 5), align_corners=True),
            "slice slice permute matmul reshape",
        ),
        "lp_pool1d": (
            lambda x: F.lp_pool1d(x.abs(), 3.0, 2),
            "abs mul mul avg_pool1d sign abs relu mul mul pow",
        ),
        "linear": (lambda x: F.interpolate(x, scale_factor=1.7, mode="linear"), "resize"),
        "linear, corners": (lambda x: F.interpolate(x, 7, mode="linear", align_corners=True), "resize"),
        "nearest of a line": (lambda x: F.interpolate(x, scale_factor=1.7), "resize"),
        "slices without elements": (
            lambda x: torch.cat([x[..., :12] * 2, x[..., 12:] + 1, x.split([5, 7, 0], 2)[2]], -1),
            "mul",
        ),
        "buckets of distances": (
            lambda x: torch.where(
                (n := x.abs().long()) < 2, n, at_most(((n.float() / 2).log() / 0.9 * 3).long(), 9)
            ).float(),
            "",
        ),
        "an order turned round, as experts are": (lambda x: back(x[:, 0].argsort(-1)).float(), ""),
        "baddbmm": (lambda x: x.baddbmm(x[:, :, :5], x, beta=0.5, alpha=3), "slice matmul mul mul add"),
        "baddbmm, nothing added": (lambda x: (x / 0).baddbmm(x[:, :, :5], x, beta=0), ""),
        "matmul, a vector": (lambda x: x @ torch.ones(12), "reshape matmul flatten"),
        "matmul, a row and a column": (lambda x: (x[0, 0] @ x.mT) @ x[:, :, 0].mT, ""),
        "einsum, scores": (lambda x: torch.einsum("bic,bjc->bij", x, x), "permute matmul"),
        "einsum, a matrix": (lambda x: torch.einsum("...c,kc->...k", x, torch.ones(3, 12)), ""),
        "einsum, three": (lambda x: torch.einsum("bij,jk,bkl->bil", x, torch.ones(12, 5), x), ""),
        "einsum, transpose": (lambda x: torch.einsum("bij->bji", x), "permute"),
        "einsum, diagonal": (lambda x: torch.einsum("bii->bi", x @ x.mT), "permute matmul flatten slice"),
    },
    (8, 15): {"fold": (lambda x: F.fold(x, (5, 4), (2, 2), padding=1, stride=(2, 1)), "fold")},
    (7,): {"einsum, outer": (lambda x: torch.einsum("bi,bj->bij", x, x), "reshape reshape mul")},
}
EVERY = [
    pytest.param(function, shape, made, id=label)
    for shape, cases in CASES.items()
    for label, (function, made) in cases.items()
]


@pytest.mark.parametrize(("function", "shape", "made"), EVERY)
def test_agrees_with_torch(function: Any, shape: tuple[int, ...], made: str) -> None:
    torch.manual_seed(0)
    module = Fn(function).eval()
    spec = from_torch(module, torch.randn(1, *shape))
    names = " ".join(n.op for n in spec.nodes if n.op != "constant")
    assert not made or names == made
    for batch in (1, 3):
        x = torch.randn(batch, *shape)
        want = module(x).numpy()
        for backend in ("reference", "cpu"):
            got = bslite.run(spec, x.numpy(), backend=backend)
            assert got.shape == want.shape
            assert np.linalg.norm(got - want) <= 2e-6 * np.linalg.norm(want) + 1e-30


EQUATIONS = [
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("ij,jk", (3, 4), (4, 5)),
    ("ba,bc", (3, 4), (3, 5)),
    ("i,i->", (7,), (7,)),
    ("i,j->ji", (3,), (4,)),
    ("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 2)),
    ("b...d,...d->b...", (2, 3, 4), (3, 4)),
    ("bhwc,hkc->bhwk", (2, 3, 4, 5), (3, 6, 5)),
    ("abcd,cd->ba", (2, 3, 4, 5), (4, 5)),
    ("ijk,ilm,njm,nlk,abc->", (2, 3, 4), (2, 5, 6), (7, 3, 6), (7, 5, 4), (2, 2, 2)),
    ("ij,ij->ij", (3, 4), (3, 4)),
    ("ij,ij->ij", (3, 1), (3, 4)),
    ("ij->i", (3, 4)),
    ("ij->", (3, 4)),
    ("...->...", (3, 4)),
    ("iij->ji", (3, 3, 4)),
    ("ii", (4, 4)),
]


@pytest.mark.filterwarnings("ignore:.*the batch is fixed")
@pytest.mark.parametrize(("equation", "shapes"), [(e, s) for e, *s in EQUATIONS])
def test_einsum_of_anything(equation: str, shapes: Any) -> None:
    torch.manual_seed(0)
    xs = tuple(torch.randn(s) for s in shapes)
    spec = from_torch(Fn(lambda *ts: torch.einsum(equation, *ts)).eval(), xs)
    got, want = bslite.run(spec, [x.numpy() for x in xs]), torch.einsum(equation, *xs).numpy()
    assert got.shape == want.shape
    assert np.linalg.norm(got - want) <= 2e-6 * np.linalg.norm(want)
