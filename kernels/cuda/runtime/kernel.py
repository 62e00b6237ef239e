"""The description of a CUDA kernel, by which the engine launches it and the tests simulate and compile it."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from bslite.kernels.contracts.launch import LaunchRecord, LaunchVariant, kinds
from bslite.kernels.cuda.runtime.device import compile_ptx, simulated
from bslite.registry import Registry

# Array cells and kinds of scalars, as `kernel` receives them. ``f8`` is a pair of float32 (`device.pair`).
DTYPES = {"f4": np.float32, "i4": np.int32, "f8": np.float64}
SCALARS = {"f4": numba.float32, "f8": numba.float64, "i4": numba.int32, "i8": numba.int64}

KERNELS: "Registry[Kernel]" = Registry("CUDA kernel")


def _none(variant: Mapping[str, Any]) -> int:
    return 0


@dataclass(frozen=True)
class Kernel:
    """A family of kernels, one per *variant*: the compile-time constants that ``make`` takes.

    ``make(**variant)`` returns the Python function to compile; its parameters are ``arrays`` (flat,
    contiguous), then ``scalars``. ``threads`` is the most threads of a block, ``registers`` the most
    registers a thread of any variant may need (the occupancy in the docstring rests on it); none may spill.
    ``samples`` are variants that together contain all code: tests compile each of them. ``blocks`` blocks of
    ``threads`` threads must fit on an SM at once, which bounds the registers that the compiler may take.
    ``dynamic`` gives the bytes of shared memory that a launch must give a variant besides those that the code
    itself declares; only so does a block get more than 48 KB. ``since`` is the least compute capability.
    """

    name: str
    make: Callable[..., Callable[..., None]]
    arrays: Mapping[str, str]
    scalars: Mapping[str, str]
    samples: Sequence[Mapping[str, Any]]
    threads: int
    registers: int
    blocks: int = 1
    since: tuple[int, int] = (8, 0)
    dynamic: Callable[[Mapping[str, Any]], int] = _none
    bounds: Callable[[Mapping[str, Any]], tuple[int, int]] | None = None

    @property
    def signature(self) -> tuple[Any, ...]:
        """The Numba types of all parameters."""
        flat = [
            numba.types.Array(numba.from_dtype(np.dtype(DTYPES[t])), 1, "C") for t in self.arrays.values()
        ]
        return (*flat, *(SCALARS[t] for t in self.scalars.values()))

    def function(self, **variant: Any) -> Any:
        """Return the simulated kernel of a variant, to be called as ``function[grid, block](*arguments)``.

        Raises RuntimeError where the compiler replaces the simulator: see `bslite.engines.cuda.gpu.driver`.
        """
        return _simulated(self.name, tuple(sorted(variant.items())))

    def ptx(self, capability: tuple[int, int], **variant: Any) -> str:
        """Return a variant's PTX for GPUs of this compute capability; needs no GPU. Not in the simulator."""
        body = self.make(**variant)
        body.__qualname__ = self.name  # what profilers show
        threads = self.bounds(variant) if self.bounds else (self.threads, self.blocks)
        return str(compile_ptx(body, self.signature, capability, threads))

    def arguments(self, given: Mapping[str, Any]) -> list[Any]:
        """Return ``given``, arrays and numbers by name, in the order and types of the parameters."""
        kinds = {"f4": np.float32, "f8": np.float64, "i4": np.int32, "i8": np.int64}
        numbers = (kinds[kind](given[name]) for name, kind in self.scalars.items())
        return [*(given[name] for name in self.arrays), *numbers]


@functools.cache
def _simulated(name: str, variant: tuple[tuple[str, Any], ...]) -> Any:
    return simulated(KERNELS[name].make(**dict(variant)))


def kernel(
    contract: type[LaunchRecord],
    *,
    threads: int = 256,
    registers: int,
    blocks: int = 1,
    since: tuple[int, int] = (8, 0),
    samples: Sequence[LaunchVariant],
    dynamic: Callable[[Mapping[str, Any]], int] = _none,
    bounds: Callable[[Mapping[str, Any]], tuple[int, int]] | None = None,
) -> Callable[[Callable[..., Callable[..., None]]], Kernel]:
    """Register a function that builds the kernels of launches with records of this type.

    The kernel's parameters are the record's, arrays first, then numbers; the function's are the variant's.
    """

    def register(make: Callable[..., Callable[..., None]]) -> Kernel:
        arrays, scalars = kinds(contract)
        name, variants = contract.kernel, tuple(s.constants() for s in samples)
        taken = list(inspect.signature(make(**variants[0])).parameters)
        if taken != (wanted := [*arrays, *scalars]):
            raise RuntimeError(f"CUDA kernel {name!r} takes {taken}, its record has {wanted}")
        made = Kernel(
            name, make, arrays, scalars, variants, threads, registers, blocks, since, dynamic, bounds
        )
        return KERNELS.add(name, made)

    return register
