"""Counters that threads share: how work is claimed and waited for without ever waiting for a thread."""

from __future__ import annotations

import sys

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import signature
from numba.extending import intrinsic, register_jitable

from bslite.kernels.cpu.vector.simd import I32, I64, pointer
from bslite.kernels.cpu.vector.target import simd

LINE = 64  # bytes of a cache line
SPINS = 4000  # pauses before a waiting thread offers its core to others
_X86 = simd().lanes >= 8
_YIELD = "sched_yield" if sys.platform != "win32" else None


def atomic(name, emit, ret, *params):
    """A Numba intrinsic ``name`` that emits an instruction which is more than arithmetic."""

    def codegen(context, builder, sig, args):
        value = emit(builder, *args)
        return context.get_dummy_value() if ret is types.void else value

    names = ", ".join(f"a{i}" for i in range(len(params)))
    scope = {"codegen": codegen, "result": signature(ret, *params)}
    exec(f"def {name}(typingctx{', ' if names else ''}{names}): return result, codegen", scope)
    return intrinsic(scope[name])


fetch_add = atomic(
    "fetch_add",
    lambda b, address, n: b.atomic_rmw("add", pointer(b, address, I64), n, "acq_rel"),
    types.int64, types.int64, types.int64,
)  # fmt: skip
load_acquire = atomic(
    "load_acquire",
    lambda b, address: b.load_atomic(pointer(b, address, I64), "acquire", 8),
    types.int64,
    types.int64,
)


def _emit_pause(builder):
    if _X86:
        fn = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), []), "llvm.x86.sse2.pause"
        )
        builder.call(fn, [])


def _emit_yield(builder):
    if _YIELD:
        fn = cgutils.get_or_insert_function(builder.module, ir.FunctionType(I32, []), _YIELD)
        builder.call(fn, [])


pause = atomic("pause", _emit_pause, types.void)
yield_core = atomic("yield_core", _emit_yield, types.void)


@register_jitable
def wait_until(counter, needed):
    """Return when the counter at an address has reached ``needed``."""
    spins = 0
    while load_acquire(counter) < needed:
        spins += 1
        if spins < SPINS:
            pause()
        else:
            yield_core()
