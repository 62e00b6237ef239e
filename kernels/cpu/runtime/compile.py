"""Kernels as functions with a C address, compiled when first needed and kept on disk.

A program step calls its kernel through a pointer, so only the kernels that a model uses are compiled, each
once per machine; no code is generated per model, and every shape is a run-time argument.
"""

import functools
import threading
from collections import namedtuple
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.ccallback import CFunc

from bslite.kernels.contracts.record import StepRecord, Variant, cells
from bslite.kernels.cpu.runtime.cache import cache_for
from bslite.kernels.cpu.runtime.record import HEADER
from bslite.kernels.cpu.vector.simd import I64, primitive
from bslite.registry import Registry

#: Called with (name, from_cache) after each kernel becomes ready; the CLI's progress bar hooks in here.
on_ready: list[Callable[[str, bool], None]] = []
#: Names of kernels that this process compiled (not loaded); tests assert on it.
compiled: list[str] = []
_lock = threading.RLock()


class Kernel:
    """A lazily compiled C function taking ``arity`` int64 arguments and returning nothing."""

    def __init__(self, py_func: Callable[..., None], name: str, arity: int) -> None:
        py_func.__qualname__ = py_func.__name__ = name
        self.name = name
        self.py_func = py_func
        self.arity = arity
        self._cfunc: Any = None

    @property
    def address(self) -> int:
        """Address of the compiled function; compiles or loads it on first use."""
        if self._cfunc is None:
            with _lock:
                if self._cfunc is None:
                    self._cfunc = self._compile()
        return int(self._cfunc.address)

    @property
    def ready(self) -> bool:
        """Whether this process has already compiled or loaded it."""
        return self._cfunc is not None

    def _compile(self) -> Any:
        args = (types.int64,) * self.arity
        options = {"nopython": True, "error_model": "numpy", "boundscheck": False}
        cfunc = CFunc(self.py_func, (args, types.void), {}, options)
        cfunc._cache = cache_for(self.py_func)
        cfunc.compile()
        if not cfunc.cache_hits:
            compiled.append(self.name)
        for hook in on_ready:
            hook(self.name, bool(cfunc.cache_hits))
        return cfunc


def caller(arity: int):
    """Intrinsic ``call(address, *arguments)``: calls a `Kernel` of that arity through its address."""

    def emit(builder, address, *arguments):
        fnty = ir.FunctionType(I64, [I64] * arity)
        builder.call(builder.inttoptr(address, fnty.as_pointer()), arguments)

    return primitive(types.void, *[types.int64] * (arity + 1))(emit)


CELLS = 112  # int64 cells of one step's record
call_item = caller(4)  # a StepKernel


class StepKernel(Kernel):
    """The kernel of a kind of step: ``f(step, bases, item, scratch)``.

    ``step`` is the address of the step's record, whose int64 cells ``fields`` names; ``bases`` is the address
    of the table of buffer addresses; ``item`` is the number of one of the step's independent work items;
    ``scratch`` is the address of this thread's own memory, if the plan has any: its first eight bytes are
    zero at the thread's first item of a step, and later items find what the one before left.
    """

    fields: tuple[str, ...]


STEP_KERNELS: Registry[StepKernel] = Registry("CPU kernel")


def offsets(contract: type[StepRecord]) -> Any:
    """The cells of a record as byte offsets: ``F = offsets(Copy)``; ``load_int(step + F.n0)``."""
    names = (*HEADER, *cells(contract))
    return namedtuple(f"{contract.kernel}_record", names)(*(8 * i for i in range(len(names))))


def step_kernel(contract: type[StepRecord]) -> Callable[[Callable[..., None]], StepKernel]:
    """Register a function as the kernel of the steps that have records of this type."""

    def wrap(py_func: Callable[..., None]) -> StepKernel:
        kernel = StepKernel(py_func, contract.kernel, 4)
        kernel.fields = offsets(contract)._fields
        return STEP_KERNELS.add(contract.kernel, kernel)

    return wrap


#: Kind of variant -> the function that gives its compiled kernel, from the variant's fields in order.
VARIANTS: dict[type[Variant], Callable[..., Kernel]] = {}


def makes(kind: type[Variant]) -> Callable[[Callable[..., Kernel]], Callable[..., Kernel]]:
    """Register a function ``make(*fields)`` that makes the kernels of this kind of variant."""

    def wrap(make: Callable[..., Kernel]) -> Callable[..., Kernel]:
        VARIANTS[kind] = make
        return make

    return wrap


@functools.cache
def kernel_of(variant: Variant) -> Kernel:
    """The kernel of a variant."""
    return VARIANTS[type(variant)](*(getattr(variant, f.name) for f in fields(variant)))
