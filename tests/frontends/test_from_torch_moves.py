"""Movement from torch: builders alone, against torch, by the reference and by the engine."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.torch_modules import Fn, torch

import bslite
from bslite import UnsupportedError, from_torch

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


#: label, function of x [N, *shape], shape, the ops it becomes (constants left out)
CASES: list[tuple[str, Callable[..., Any], tuple[int, ...], str]] = [
    ("roll", lambda x: torch.roll(x, (-1, 2), (2, 3)), IMAGE, "roll"),
    ("flip", lambda x: x.flip(1, 3), IMAGE, "slice slice"),
    ("repeat", lambda x: x.repeat(1, 1, 2, 3), IMAGE, "tile"),
    ("repeat, new axis", lambda x: x.repeat(2, 1, 1, 1, 1)[1], IMAGE, "reshape tile slice reshape"),
    ("tile", lambda x: x.tile(2, 3), TOKENS, "tile"),
    ("repeat_interleave", lambda x: x.repeat_interleave(3, 2), TOKENS, "reshape expand flatten"),
    ("expand", lambda x: x[:, :, None].expand(-1, -1, 4, -1).tanh(), TOKENS, "reshape expand tanh"),
    ("movedim", lambda x: x.movedim((1, 3), (3, 2)), IMAGE, "permute"),
    ("tril", lambda x: x.tril(2), IMAGE, "trilu"),
    ("triu", lambda x: x.triu(-1), TOKENS, "trilu"),
    ("pad reflect", lambda x: F.pad(x, (2, 1, 0, 3), "reflect"), IMAGE, "pad"),
    ("pad replicate", lambda x: F.pad(x, (2, 1, 0, 3), "replicate"), IMAGE, "pad"),
    ("pad circular", lambda x: F.pad(x, (2, 1, 0, 3), "circular"), IMAGE, "pad"),
    ("pad, cut", lambda x: F.pad(x, (-2, 1, 0, -3), value=2.0), IMAGE, "pad"),
    ("gather", lambda x: x.gather(1, x.argsort(1)[:, :2]), TOKENS, "topk slice gather_elements"),
    ("one index", lambda x: x[:, ROWS], TOKENS, "gather"),
    ("two indices", lambda x: x[:, ROWS, COLUMNS], TOKENS, "permute gather_nd permute"),
    ("indices in front", lambda x: x.permute(1, 2, 0)[ROWS, COLUMNS], TOKENS, "permute gather_nd"),
    ("indices apart", lambda x: x[:, ROWS, :, COLUMNS], IMAGE, "permute gather_nd"),
    ("topk", lambda x: torch.topk(x, 3)[0], TOKENS, "topk gather_elements"),
    ("topk, indices", lambda x: torch.topk(x, 3, 1, False)[1].float(), TOKENS, "topk cast"),
    ("sort", lambda x: x.sort(1, descending=True)[0], TOKENS, "topk gather_elements"),
    ("argsort", lambda x: x.argsort(-1).float(), TOKENS, "topk cast"),
    ("one_hot", lambda x: F.one_hot(x.argsort(-1), 12).float(), TOKENS, "topk one_hot cast"),
    (
        "scatter_add",
        lambda x: x.scatter_add(2, x.argsort(-1)[:, :, :4], x),
        TOKENS,
        "topk slice slice scatter_elements",
    ),
    ("index_put, one value", lambda x: assigned(x, (slice(None), ROWS[0]), 0.5), TOKENS, "where"),
    ("index_put, known mask", lambda x: assigned(x, (slice(None), MASK), -1.0), TOKENS, "where"),
    ("index_put, mask", lambda x: assigned(x, x > 0.5, 2.0), TOKENS, "greater where"),
    (
        "index_put, values",
        lambda x: assigned(x, (slice(None), ROWS, COLUMNS), x[:, :2, :3] * 2),
        TOKENS,
        "slice slice mul permute permute scatter_nd permute",
    ),
    (
        "index_put, apart",
        lambda x: assigned(x, (slice(None), ROWS[0], slice(None), ROWS[1]), x[:, 0, :, :3].permute(2, 0, 1)),
        IMAGE,
        "slice flatten slice permute permute scatter_nd permute",
    ),
    (
        "index_put, accumulated",
        lambda x: x[0].index_put((torch.tensor([1, 1, 0]),), x[0, :3], accumulate=True),
        TOKENS,
        "slice reshape slice reshape slice scatter_nd",
    ),
    (
        "index_add",
        lambda x: x.index_add(1, torch.tensor([1, 4, 1]), x[:, :3], alpha=-2),
        TOKENS,
        "slice mul permute permute scatter_nd permute",
    ),
    (
        "index_copy",
        lambda x: x.index_copy(2, torch.tensor([7, 0]), x[:, :, :2]),
        TOKENS,
        "slice permute permute scatter_nd permute",
    ),
    ("index_fill", lambda x: x.index_fill(2, torch.tensor([7, -2]), 2.5), TOKENS, "where"),
    (
        "index_fill by a computed index",
        lambda x: x[0].index_fill(1, x.argsort(-1)[0, 0, :2], 2.5),
        TOKENS,
        "",
    ),
    ("cumprod", lambda x: x.cumprod(1), TOKENS, "cumprod"),
    ("logcumsumexp", lambda x: x.logcumsumexp(-1), TOKENS, "logcumsumexp"),
    ("unfold", lambda x: F.unfold(x, (2, 3), (2, 1), (1, 0), (1, 2)), IMAGE, "unfold"),
    ("fold", lambda x: F.fold(x, (5, 4), (2, 2), padding=1, stride=(2, 1)), (8, 15), "fold"),
    (
        "grid_sample",
        lambda x: F.grid_sample(x, x[:, :2].mT.permute(0, 2, 3, 1), align_corners=False),
        IMAGE,
        "slice permute permute grid_sample",
    ),
    (
        "grid_sample, mirrored",
        lambda x: F.grid_sample(x, x[:, :2].permute(0, 2, 3, 1), "bicubic", "reflection", True),
        IMAGE,
        "slice permute grid_sample",
    ),
    (
        "grid_sample of a volume",
        lambda x: F.grid_sample(
            x[:, None], x[:, :3, None].permute(0, 2, 3, 4, 1), "nearest", "border", align_corners=False
        ),
        IMAGE,
        "",
    ),
    (
        "affine_grid",
        lambda x: F.affine_grid(x[:, :2, :3], (x.shape[0], 3, 4, 5), align_corners=True),
        TOKENS,
        "slice slice permute matmul reshape",
    ),
    (
        "lp_pool1d",
        lambda x: F.lp_pool1d(x.abs(), 3.0, 2),
        TOKENS,
        "abs mul mul avg_pool1d sign abs relu mul mul pow",
    ),
    (
        "lp_pool2d",
        lambda x: F.lp_pool2d(x, 2.0, (2, 3), stride=1),
        IMAGE,
        "mul avg_pool2d sign abs relu mul mul sqrt",
    ),
    (
        "nearest of a volume",
        lambda x: F.interpolate(x[:, None], scale_factor=(2, 1.5, 1)),
        IMAGE,
        "reshape resize",
    ),
    ("linear", lambda x: F.interpolate(x, scale_factor=1.7, mode="linear"), TOKENS, "resize"),
    ("linear, corners", lambda x: F.interpolate(x, 7, mode="linear", align_corners=True), TOKENS, "resize"),
    ("nearest of a line", lambda x: F.interpolate(x, scale_factor=1.7), TOKENS, "resize"),
    ("nearest-exact", lambda x: F.interpolate(x, (5, 13), mode="nearest-exact"), IMAGE, "resize"),
    ("bicubic", lambda x: F.interpolate(x, (5, 13), mode="bicubic"), IMAGE, "resize"),
    ("bicubic by a scale", lambda x: F.interpolate(x, scale_factor=1.3, mode="bicubic"), IMAGE, "resize"),
    (
        "trilinear",
        lambda x: F.interpolate(x[:, None], (4, 5, 13), mode="trilinear"),
        IMAGE,
        "reshape resize",
    ),
    (
        "bilinear, antialias",
        lambda x: F.interpolate(x, (4, 11), mode="bilinear", antialias=True),
        IMAGE,
        "resize",
    ),
    (
        "bicubic, antialias",
        lambda x: F.interpolate(x, (4, 11), mode="bicubic", antialias=True),
        IMAGE,
        "resize",
    ),
    ("einsum, scores", lambda x: torch.einsum("bic,bjc->bij", x, x), TOKENS, "permute matmul"),
    ("einsum, a matrix", lambda x: torch.einsum("...c,kc->...k", x, torch.ones(3, 12)), TOKENS, ""),
    (
        "einsum, two axes",
        lambda x: torch.einsum("bchw,bdhw->bdc", x, x),
        IMAGE,
        "flatten permute flatten matmul permute",
    ),
    ("einsum, heads", lambda x: torch.einsum("bhid,bhjd->bhij", x, x), IMAGE, "permute matmul"),
    ("einsum, outer", lambda x: torch.einsum("bi,bj->bij", x, x), (7,), "reshape reshape mul"),
    ("einsum, three", lambda x: torch.einsum("bij,jk,bkl->bil", x, torch.ones(12, 5), x), TOKENS, ""),
    ("einsum, transpose", lambda x: torch.einsum("bij->bji", x), TOKENS, "permute"),
    ("einsum, diagonal", lambda x: torch.einsum("bii->bi", x @ x.mT), TOKENS, "permute matmul flatten slice"),
]


@pytest.mark.parametrize(("label", "function", "shape", "made"), CASES, ids=[c[0] for c in CASES])
def test_agrees_with_torch(label: str, function: Any, shape: tuple[int, ...], made: str) -> None:
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


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: torch.unique(x), "depends on the data"),
        (lambda x: torch.nonzero(x), "depends on the data"),
        (lambda x: torch.take_along_dim(x, x.argsort(1)), "flattened"),
    ],
)
def test_what_cannot_be_says_why(function: Any, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        from_torch(Fn(function).eval(), torch.randn(3, 5))


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
