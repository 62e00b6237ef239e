"""Movement from torch: builders alone, against torch, by the reference and by the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from torch_modules import Fn, torch

import bslite
from bslite import UnsupportedError, from_torch

F = torch.nn.functional
IMAGE, TOKENS = (6, 9, 8), (5, 12)
ROWS = torch.tensor([[3, 0, 1], [4, 4, 2]])
COLUMNS = torch.tensor([[7, 0, 1], [2, 2, 5]])

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
