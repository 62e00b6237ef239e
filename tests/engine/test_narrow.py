"""Weights whose numbers all fit 16 bits lie so in memory: half the bytes, the same bits of results."""

from typing import Any

import numpy as np
import pytest
import torch
from support.graphs import one_op
from support.noise import noise

import bslite
from bslite.engines.cpu import constants
from bslite.engines.cpu.engine import engine_for
from bslite.kernels.contracts.cpu.gemm import Conv
from bslite.kernels.contracts.cpu.grouped import Grouped
from bslite.kernels.contracts.cpu.sweep import Narrow
from bslite.kernels.cpu.vector.target import widens_halves
from bslite.plan.core.views import contiguous
from bslite.plan.cpu.tuning import Tuning
from bslite.spec import Array, ModelSpec

KINDS = pytest.mark.parametrize(
    "kind", [Narrow.BFLOAT16, *([Narrow.FLOAT16] if widens_halves() else [])], ids=lambda kind: kind.name
)


def fitting(kind: Narrow, *shape: int) -> Array:
    """Noise rounded to 16 bits, with the smallest numbers and zeros of both signs."""
    made = noise(*shape, seed=3)
    made.reshape(-1)[:6] = 0.0, -0.0, 1e-7, -6e-8, 6e-5, 3e4
    return torch.from_numpy(made).to(getattr(torch, kind.name.lower())).float().numpy()


def narrows(spec: ModelSpec, *shape: int) -> set[Narrow]:
    """How the weights of the steps of its plan lie."""
    session = engine_for(spec).session([shape], [contiguous(shape)], 2, False)
    return {s.record.narrow for s in session.plan.steps if isinstance(s.record, Conv)}


def widened(spec: ModelSpec, *shape: int) -> set[bool]:
    """Whether items write a panel as float32 before tiles read it."""
    session = engine_for(spec).session([shape], [contiguous(shape)], 2, False)
    return {bool(s.record.widen) for s in session.plan.steps if isinstance(s.record, Conv)}


def both(spec: ModelSpec, x: Array, threads: int = 2) -> tuple[Array, Array]:
    """What is computed with weights of 16 bits, and with the same as float32."""
    engine, strides = engine_for(spec), contiguous(x.shape)
    made = [
        engine.compute(engine.session([x.shape], [strides], threads, False, tuning=how), [x])[0]
        for how in (Tuning(), Tuning(narrowing=False))
    ]
    return made[0], made[1]


@KINDS
@pytest.mark.parametrize("rows", [1, 2, 7, 33])
@pytest.mark.parametrize(("outputs", "depth"), [(257, 1031), (1100, 255), (512, 2048)])
def test_linear_layers_have_the_same_bits(kind: Narrow, rows: int, outputs: int, depth: int) -> None:
    x = noise(rows, depth)
    spec = one_op("linear", x, weight=fitting(kind, outputs, depth), bias=noise(outputs))
    assert narrows(spec, *x.shape) == {kind}
    for threads in (1, 2):
        got, want = both(spec, x, threads)
        assert got.tobytes() == want.tobytes()


@KINDS
@pytest.mark.parametrize("groups", [1, 3])
def test_convolutions_have_the_same_bits(kind: Narrow, groups: int) -> None:
    x = noise(2, 96 * groups, 7, 9)
    weight = fitting(kind, 320 * groups, 96, 3, 3)
    spec = one_op("conv2d", x, weight=weight, padding=1, groups=groups)
    assert narrows(spec, *x.shape) == {kind}
    got, want = both(spec, x)
    assert got.tobytes() == want.tobytes()


@KINDS
def test_panels_that_many_tiles_read_are_widened_once(kind: Narrow) -> None:
    """Panels of one and of several parts, the last one narrower, in groups, with rows and planes left out."""
    x = noise(130, 1031)
    linear = one_op("linear", x, weight=fitting(kind, 257, 1031), bias=noise(257))
    image = noise(2, 200, 15, 13)
    conv = one_op("conv2d", image, weight=fitting(kind, 360, 100, 3, 3), padding=1, groups=2)
    planes = noise(1, 64, 4, 9, 12)
    deep = one_op("conv3d", planes, weight=fitting(kind, 160, 64, 3, 3, 3), padding=1)
    for spec, given in ((linear, x), (conv, image), (deep, planes)):
        assert narrows(spec, *given.shape) == {kind}
        assert widened(spec, *given.shape) == {True}
        for threads in (1, 2):
            got, want = both(spec, given, threads)
            assert got.tobytes() == want.tobytes()
    assert widened(one_op("linear", x[:40], weight=fitting(kind, 257, 1031)), 40, 1031) == {False}


@pytest.mark.parametrize(
    ("weight", "kind"),
    [
        (noise(512, 512), Narrow.NO),
        (torch.randn(512, 512).bfloat16().float().numpy(), Narrow.BFLOAT16),
        (torch.randn(512, 512).half().float().numpy(), Narrow.FLOAT16),
        (torch.randn(512, 512).half().float().numpy().T, Narrow.FLOAT16),
        (np.full((512, 512), np.nan, np.float32), Narrow.BFLOAT16),
        (np.full((512, 512), -np.inf, np.float32), Narrow.BFLOAT16),
        (np.full((512, 512), 1e-8, np.float32), Narrow.NO),  # below float16's range
        (np.full((512, 512), 1e5 + 1, np.float32), Narrow.NO),  # above it
        (np.zeros((512, 512), np.float32), Narrow.BFLOAT16),
    ],
)
def test_what_fits(weight: Array, kind: Narrow) -> None:
    assert Narrow(int(constants.narrow_of(weight))) == kind


def test_the_last_number_counts() -> None:
    for kind in (Narrow.BFLOAT16, Narrow.FLOAT16):
        weight = fitting(kind, 600, 500)
        assert Narrow(int(constants.narrow_of(weight))) == kind
        weight[-1, -1] = 1 / 3
        assert Narrow(int(constants.narrow_of(weight))) == Narrow.NO


def test_small_weights_stay_as_they_are() -> None:
    weight = fitting(Narrow.BFLOAT16, 64, 64)
    assert narrows(one_op("linear", (2, 64), weight=weight), 2, 64) == {Narrow.NO}


@KINDS
def test_infinite_and_absent_numbers_reach_the_results(kind: Narrow) -> None:
    weight, x = fitting(kind, 600, 512), noise(3, 512)
    weight[5, 7], weight[9, 11] = np.inf, -np.inf
    x[1, 3] = np.nan
    got, want = both(one_op("linear", x, weight=weight), x)
    assert got.tobytes() == want.tobytes()
    assert np.isinf(got[0, 5])
    assert np.isnan(got[1]).all()


def test_plans_share_what_is_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = []
    make = constants.make
    monkeypatch.setattr(constants, "make", lambda c, *a: (packed.append(c.recipe), make(c, *a))[1])
    spec = one_op("linear", ("N", 1024), weight=fitting(Narrow.BFLOAT16, 1024, 1024))
    for rows in (1, 9, 1, 17):
        bslite.run(spec, noise(rows, 1024))
    assert packed.count("narrow_panels") == 1
    assert "panels" not in packed
    assert bslite.api.memory(spec)["weights"] < 2.2 * 2**20


def test_changed_weights_are_looked_at_again() -> None:
    net: Any = torch.nn.Linear(640, 512).bfloat16().float().eval()
    spec, x = bslite.from_torch(net, torch.randn(2, 640)), noise(2, 640)
    assert narrows(spec, 2, 640) == {Narrow.BFLOAT16}
    with torch.no_grad():
        net.weight.add_(1 / 3)
    bslite.run(spec, x)
    assert narrows(spec, 2, 640) == {Narrow.NO}
    exact = bslite.run(spec, x, backend="reference64")
    assert np.linalg.norm(bslite.run(spec, x) - exact) < 1e-6 * np.linalg.norm(exact)


@KINDS
def test_layers_that_share_a_weight(kind: Narrow) -> None:
    """A table that is looked up stays as it is; its products read 16 bits."""
    spec = bslite.from_torch(Tied(fitting(kind, 700, 512)).eval(), torch.zeros(1, 4, dtype=torch.int64))
    ids = np.array([[1, 699, 3, 7]])
    exact = bslite.run(spec, ids, backend="reference64")
    assert np.linalg.norm(bslite.run(spec, ids) - exact) < 1e-6 * np.linalg.norm(exact)
    assert narrows(spec, 1, 4) == {kind}


class Tied(torch.nn.Module):
    """The scores of all words against some."""

    def __init__(self, weight: Array) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.from_numpy(weight.copy()))

    def forward(self, ids: Any) -> Any:
        found = torch.nn.functional.embedding(ids, self.weight)
        return torch.nn.functional.linear(found, self.weight)


@KINDS
@pytest.mark.parametrize("rows", [3, 24])
def test_experts_have_the_same_bits(kind: Narrow, rows: int) -> None:
    x, weight = noise(rows, 256), fitting(kind, 6, 300, 256)
    ends = np.array([0, rows // 3, rows // 3, rows - 1, rows - 1, rows - 1], np.int32)
    spec = one_op("grouped_linear", x, ends, weight=weight)
    engine = engine_for(spec)
    made, found = [], []
    for how in (Tuning(), Tuning(narrowing=False)):
        shapes, strides = [x.shape, ends.shape], [contiguous(x.shape), (1,)]
        session = engine.session(shapes, strides, 2, False, tuning=how)
        found += [s.record.sweep.narrow for s in session.plan.steps if isinstance(s.record, Grouped)]
        made.append(engine.compute(session, [x, ends])[0])
    assert found == [kind, Narrow.NO]
    assert made[0].tobytes() == made[1].tobytes()
    assert np.any(made[0])


@KINDS
def test_an_explanation_says_how_they_lie(kind: Narrow) -> None:
    x = noise(2, 1024)
    spec = one_op("linear", x, weight=fitting(kind, 512, 1024))
    (row,) = bslite.explain(spec, x).layers
    assert f"weights lie in {kind.name.lower()}" in row.holds
