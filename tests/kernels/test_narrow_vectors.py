"""Kernels compiled for AVX2 and for 128 bits without fused multiply-adds: a few cases, in another process.

`test_processes` runs whole networks so; here are the kernels that those do not reach. All cases of all ops,
by hand: ``NUMBA_CPU_NAME=haswell NUMBA_CPU_FEATURES= pytest tests/engine/test_engine_ops.py`` and the like.
"""

import platform
from collections.abc import Iterable

import pytest
from numba.core import config
from support.process import printed

from bslite.kernels.cpu.vector.target import simd

pytestmark = pytest.mark.processes

#: Ops whose kernels differ in shape from one another, and how many of their cases to run, spread over all.
OPS = {
    "conv1d": 3, "conv3d": 3, "conv_transpose2d": 3, "max_pool3d": 2, "avg_pool1d": 2, "attention": 4,
    "attention_grad": 6,
    "sum": 3, "var": 2, "amax": 2, "argmin": 2, "logsumexp": 2, "cumsum": 2, "cumprod": 2,
    "fourier": 36, "complex_mul": 8, "l2_norm": 9,
    "gather_nd": 2, "scatter_elements": 3, "scatter_nd": 3, "topk": 2, "resize": 5, "grid_sample": 6,
    "fold": 3, "unfold": 2, "pow": 2, "remainder": 2, "where": 2, "cast": 2, "rms_norm": 2,
    "lstm": 3, "lstm_rounded": 2, "gru": 3, "pairs": 4, "quads": 4, "int_conv2d": 9, "int_linear": 5,
    "lstm_steps": 4, "gru_steps": 4, "lstm_deltas": 3, "gru_deltas": 3, "rnn_deltas": 2,
    "linear_given": 5, "matmul": 4, "grouped_linear": 4, "block_linear": 6, "permute": 14,
}  # fmt: skip
#: Those that are tried at 128 bits too, which shows less: the same code in more registers.
NARROWEST = (
    "conv3d",
    "attention",
    "attention_grad",
    "sum",
    "var",
    "scatter_nd",
    "fourier",
    "resize",
    "grid_sample",
    "pow",
    "lstm",
    "int_conv2d",
    "permute",
)
#: Those that are tried on AVX, which has registers of 8 floats, but not of 8 integers.
OLDEST = ("conv3d", "sum", "int_conv2d", "int_linear", "resize", "lstm_rounded", "permute")
CHECK = """
import numpy as np
import bslite
from bslite import ops, reference
from bslite.kernels.cpu.vector.target import simd
from support.check import TINY, rel_l2, single_op_spec

ran = 0
for name, count in {ops}.items():
    op = ops.get(name)
    cases = op.cases()
    for case in [cases[i * (len(cases) - 1) // max(1, count - 1)] for i in range(count)]:
        spec, inputs = single_op_spec(op, case)
        exact = reference.run(spec, inputs, np.float64)[0]
        peer = reference.run(spec, inputs, np.float32)[0]
        got = bslite.run(spec, inputs, threads=1)
        where = (name, case.label)
        assert bslite.run(spec, inputs, threads=2).tobytes() == got.tobytes(), where
        assert got.dtype == peer.dtype, where
        if got.dtype == np.float32:
            error, other = rel_l2(got, exact), rel_l2(peer, exact)
            other = max(other, 2.0**-24) if name == "fourier" else other  # numpy computes in float64
            assert error <= 4 * other + TINY, (*where, error, other)
        else:
            assert np.array_equal(got, exact), where
        ran += 1
print("ran", ran, "lanes", simd().lanes)
"""


@pytest.mark.parametrize(
    ("cpu", "lanes", "names"), [("haswell", 8, OPS), ("x86-64", 4, NARROWEST), ("ivybridge", 4, OLDEST)]
)
def test_kernels(cpu: str, lanes: int, names: Iterable[str]) -> None:
    if platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip("names of x86 processors")
    if simd().lanes == lanes:
        pytest.skip("this processor's own vectors: all other tests run with them")
    tried = {name: OPS[name] for name in names}
    said = printed(CHECK.format(ops=tried), NUMBA_CPU_NAME=cpu, NUMBA_CPU_FEATURES="")
    assert said.split() == ["ran", str(sum(tried.values())), "lanes", str(lanes)]


@pytest.mark.parametrize(
    ("cpu", "lanes"),
    [("x86-64", 4), ("ivybridge", 4), ("haswell", 8), ("knl", 8), ("skylake-avx512", 16), ("znver4", 16)],
)
def test_registers_count_where_they_take_integers_too(
    cpu: str, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip("names of x86 processors")
    monkeypatch.setattr(config, "CPU_NAME", cpu)
    monkeypatch.setattr(config, "CPU_FEATURES", "")
    assert simd.__wrapped__().lanes == lanes


DOTS = """
import re
from bslite.kernels.cpu.gemm.int_tile import int_sweep
from bslite.kernels.cpu.vector.target import has_dots, simd
from numba import types
from numba.core.ccallback import CFunc

kernel = int_sweep(2, 3, True)
made = CFunc(kernel.py_func, ((types.int64,) * kernel.arity, types.void), {}, {"nopython": True})
made.compile()
text = made._library.get_asm_str()
broadcast = re.findall(r"vpbroadcastd\\s.*(%[yz]mm\\d+)", text)
dots = re.findall(r"vpdpbusd\\s+(.*), (%[yz]mm\\d+), %[yz]mm\\d+", text)
print(simd().lanes, has_dots(), len(dots) >= 6, {unsigned for _, unsigned in dots} <= set(broadcast),
      "vpmaddubsw" in text)
"""


@pytest.mark.parametrize(("cpu", "lanes"), [("icelake-server", 16), ("alderlake", 8)])
def test_vnni_multiplies_quads(cpu: str, lanes: int) -> None:
    """Compiled, not run: the broadcast cells of the image are the unsigned operand."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip("names of x86 processors")
    said = printed(DOTS, NUMBA_CPU_NAME=cpu, NUMBA_CPU_FEATURES="")
    assert said.split() == [str(lanes), "True", "True", "True", "False"]


HALVES = """
import numpy as np
import bslite
from bslite.kernels.cpu.vector.target import widens_halves
from support.graphs import one_op
from support.noise import noise

weight = noise(512, 600).astype(np.float16).astype(np.float32)
x = noise(3, 600)
y = bslite.run(one_op("linear", x, weight=weight), x, threads=1)
print(widens_halves(), bool(np.allclose(y, x @ weight.T, atol=1e-4)))
"""


@pytest.mark.parametrize(("cpu", "widens"), [("x86-64", False), ("ivybridge", True)])
def test_weights_that_fit_float16_before_and_with_f16c(cpu: str, widens: bool) -> None:
    if platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip("names of x86 processors")
    assert printed(HALVES, NUMBA_CPU_NAME=cpu, NUMBA_CPU_FEATURES="").split() == [str(widens), "True"]
