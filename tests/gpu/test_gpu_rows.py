"""Row kernels by themselves: rows over several warps, longer than a block holds, NaN and infinities."""

from typing import Any

import numpy as np
import pytest
from support.check import Array, assert_three_way, same_specials
from support.gpu_cases import answers, check_near, spec_of
from support.gpu_simulate import launch
from support.graphs import Graph
from support.noise import noise

import bslite
from bslite import reference
from bslite.engines.cuda.simulated import SimulatedDriver
from bslite.errors import BsliteError
from bslite.explore.gpu import GpuMachine
from bslite.kernels.cuda import KERNELS
from bslite.plan.cuda import build_plan
from bslite.plan.cuda import rows as plan_rows

pytestmark = pytest.mark.simulator

SHAPE = {"n1": 1, "n2": 1, "x1": 0, "x2": 0, "y1": 0, "y2": 0}
#: Threads, of a row, elements of a thread at once, whether these are all of a row.
SHARES = [(64, 64, 2, 1), (64, 64, 1, 0), (32, 8, 4, 1), (4, 1, 3, 0)]


def rows(count: int, length: int) -> Array:
    """Noise, one row of it with a NaN, one with an infinity, one of minus infinities, one far off."""
    x = noise(count, length, seed=length)
    x[0, -1], x[1, 0], x[2], x[3] = np.nan, np.inf, -np.inf, x[3] + 90
    return x


def run(
    kernel: str, x: Array, share: tuple[int, int, int, int], given: dict[str, Any], **variant: Any
) -> Array:
    """A row kernel over the rows of x, with two rows of the result that belong to nobody."""
    count, length = x.shape
    threads, width, each, held = share
    y = launch(
        KERNELS[kernel], (-(-count // (threads // width)),), (threads,),
        {"x": x, "y": np.full((count + 2, length), 7, np.float32), "rows": count, "length": length, **SHAPE,
         "x0": 0, "y0": 0, "x2": length, "y2": length, "n2": count, **given},
        threads=threads, width=width, each=each, held=held, **variant,
    )["y"].reshape(count + 2, length)  # fmt: skip
    assert (y[count:] == 7).all()
    return y[:count]


def same(got: Array, op: str, x: Array, params: dict[str, Array], **attrs: Any) -> None:
    """As near to float64 as the reference in float32 is; NaN and infinities where it has them."""
    with np.errstate(all="ignore"):
        exact, peer = (reference.call(op, [x], params, attrs, kind) for kind in (np.float64, np.float32))
    assert_three_way(got, peer, exact)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("log_of", [0, 1])
def test_softmax(share: tuple[int, int, int, int], log_of: int) -> None:
    x = rows(7, share[1] * share[2] if share[3] else 2 * share[1] * share[2] + 1)
    got = run("softmax", x, share, {}, log_of=log_of)
    same(got, "log_softmax" if log_of else "softmax", x, {}, axis=-1)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize(("op", "kind"), [("layer_norm", 0), ("rms_norm", 1), ("normalize", 2)])
def test_norms(share: tuple[int, int, int, int], op: str, kind: int) -> None:
    x = rows(7, share[1] * share[2] if share[3] else 2 * share[1] * share[2] + 1)
    rng = np.random.default_rng(1)
    roles = {"layer_norm": ("weight", "bias"), "rms_norm": ("weight",), "normalize": ()}[op]
    params = {role: rng.standard_normal(x.shape[1]).astype(np.float32) for role in roles}
    given = {"eps": 1e-5, "weight": x[:1], "bias": x[:1], **params}
    got = run("normalize_rows", x, share, given, kind=kind, weighted=int("weight" in params),
              biased=int("bias" in params))  # fmt: skip
    attrs: dict[str, Any] = {"normalized_shape": x.shape[1:]} if roles else {"axis": -1}
    same(got, op, x, params, eps=1e-5, **attrs)


def test_far_from_zero_norms_keep_their_digits() -> None:
    """The mean is ten thousand times the deviation."""
    x = noise(5, 70, shift=10000.0)
    given = {"eps": 1e-5, "weight": x[:1], "bias": x[:1]}
    got = run("normalize_rows", x, (32, 32, 4, 1), given, kind=0, weighted=0, biased=0)
    exact = reference.call("layer_norm", [x], {}, {"normalized_shape": (70,), "eps": 1e-5}, np.float64)
    assert np.linalg.norm(got - exact) <= 1e-6 * np.linalg.norm(exact)


LONG = {
    "softmax": {"axis": 1}, "log_softmax": {"axis": 1}, "normalize": {"axis": 1},
    "layer_norm": {"normalized_shape": (1300,)}, "rms_norm": {"normalized_shape": (1300,)},
}  # fmt: skip


@pytest.mark.parametrize("op", LONG)
def test_few_long_rows_are_shared_by_blocks(op: str) -> None:
    """Special values in one part of a row each: they reach all others. The last part is shorter."""
    x = rows(7, 1300)
    x[4, :600], x[5, -1], x[6, -1] = -np.inf, -np.inf, 50
    roles = {"layer_norm": ("weight", "bias"), "rms_norm": ("weight",)}.get(op, ())
    rng = np.random.default_rng(3)
    params = {role: rng.standard_normal(1300).astype(np.float32) for role in roles}
    for given in (*x[:, None], x[5:]):  # one row: three parts, of the simulator's machine; two rows: two
        spec = spec_of(op, given, params=params, **LONG[op])
        got = bslite.run(spec, given, backend="cuda")
        check_near(got, spec, given)
        assert got.tobytes() == bslite.run(spec, given, backend="cuda").tobytes()
    kernel = "softmax" if "softmax" in op else "normalize"
    for count, parts in ((1, 3), (2, 2)):
        spec = spec_of(op, x[:count], params=params, **LONG[op])
        steps = build_plan(spec, [(count, 1300)], SimulatedDriver.machine).steps
        assert [s.kernel for s in steps][:2] == [f"{kernel}_part", f"{kernel}_join"]
        assert steps[0].grid == (parts, count)


@pytest.mark.parametrize(
    ("shape", "parts"),
    [((1, 10**6), 256), ((32, 32000), 16), ((4096, 1000), 1), ((8, 4000), 1), ((2000, 50257), 1)],
)
def test_how_many_blocks_take_a_row(shape: tuple[int, int], parts: int) -> None:
    """As many as the GPU holds, where they are few and long; one where there are many rows, or it holds its
    row at once.
    """
    machine = GpuMachine()
    share = plan_rows.Share(256, 256, 16, 1) if shape[1] <= 4096 else plan_rows.Share(256, 256, 8, 0)
    assert plan_rows.row_parts(machine, *shape, share) == parts


@pytest.mark.parametrize("image", [(5, 7), (3, 2, 4)], ids=["image", "volume"])
def test_group_norm_with_an_activation(image: tuple[int, ...]) -> None:
    x = noise(2, 6, *image)
    graph = Graph()
    norm = graph("group_norm", "norm", graph.input("x", x.shape), num_groups=3)
    spec = graph.build(graph("silu", "act", norm))
    check_near(bslite.run(spec, x, backend="cuda"), spec, x)
    layers = {step.layers for step in build_plan(spec, [x.shape], GpuMachine()).steps}
    assert {("norm",), ("act",)} <= layers  # no store of a group norm has an activation there


def test_group_norm_of_one_large_image() -> None:
    """Few channels side by side; bands so many that their sums are soon joined."""
    x = noise(1, 3, 30, 40, shift=2)
    spec = spec_of("group_norm", x, num_groups=1)
    check_near(bslite.run(spec, x, backend="cuda"), spec, x)
    large = np.broadcast_to(x[..., :1, :1], (1, 3, 1000, 1000))
    plan = build_plan(spec_of("group_norm", large, num_groups=1), [large.shape], GpuMachine())
    (sums,) = (step for step in plan.steps if step.kernel == "channel_sums")
    assert sums.grid == (1, 512, 1)
    assert sums.block == (4, 64)


@pytest.mark.parametrize(
    "op", ["sum", "mean", "amax", "amin", "prod", "var", "logsumexp", "argmax", "argmin"]
)
@pytest.mark.parametrize("shape", [(7, 40), (3, 1200)], ids=["one block", "several blocks"])
def test_reductions_of_nan_and_infinities(op: str, shape: tuple[int, int]) -> None:
    x = noise(8, *shape)
    if op == "prod":
        x = 1 + x / 50  # else it underflows, here or there
    x[0, :, 5], x[1, :, -1], x[2, :, 3], x[3] = np.nan, np.inf, -np.inf, -np.inf
    x[4, :, 2], x[4, :, 4], x[5, :, 7], x[5, :, 9] = np.inf, -np.inf, np.nan, np.inf
    axis = {"axis": 2} if op.startswith("arg") else {"axes": (2,)}
    got, exact = answers(op, x, **axis)
    if exact.dtype.kind == "i":
        np.testing.assert_array_equal(got, exact)
        return
    assert same_specials(got, exact.astype(np.float32))
    good = np.isfinite(exact)
    np.testing.assert_allclose(got[good], exact[good], rtol=2e-6)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("length", [50, 2000])
def test_positions_of_equals(length: int, last: bool) -> None:
    x = np.random.default_rng(length).integers(0, 3, (4, length)).astype(np.float32)
    for op in ("argmax", "argmin"):
        got, exact = answers(op, x, axis=1, last=last)
        np.testing.assert_array_equal(got, exact)


def test_integers_that_do_not_fit_are_errors() -> None:
    x = np.array([[2**31 - 1, 1], [5, 6]], np.int64)
    for op, attrs in (("sum", {"axes": (1,)}), ("cumsum", {"axis": 1}), ("cumprod", {"axis": 0})):
        with pytest.raises(BsliteError, match=r"'y'.*214748364[89]"):
            answers(op, x, **attrs)
    got, exact = answers("prod", np.array([[2**30, 2**30, 2**30, 0]], np.int64), axes=(1,))
    assert got == exact == 0
