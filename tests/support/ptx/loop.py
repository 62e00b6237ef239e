"""The interpreter: source made of `semantics`, compiled by Numba.

A warp's threads run together as long as they are at the same place; where they are not, those furthest
behind go first, so they meet again where their ways do. A place in the code is the number of an instruction.
"""

import functools
import hashlib
import importlib.util
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from bslite.cache import cache_dir, write
from support.once import once
from support.ptx.semantics import CONTROL, FREQUENT, MEANINGS, OPCODES

WARP = 32
#: What ended a run: all threads are done, or it is another block's turn; or what is wrong.
DONE, TURN, OUTSIDE, MISALIGNED, UNWRITTEN, SHARED_RACE, GLOBAL_RACE, BARRIER, SHUFFLE, ENDLESS = range(10)

type_f32, type_f64 = np.float32, np.float64
type_s32, type_u32, type_s64, type_u64 = np.int32, np.uint32, np.int64, np.uint64
type_nan = np.float32(np.nan)


@intrinsic
def fma(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """a*b + c, rounded once."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return a(a, a, a), codegen


def _peek(kind: Any, bits: int) -> Any:
    @intrinsic
    def peek(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.load(builder.inttoptr(args[0], ir.IntType(bits).as_pointer()))

        return kind(types.uint64), codegen

    return peek


def _poke(kind: Any, bits: int) -> Any:
    @intrinsic
    def poke(typingctx: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.store(args[1], builder.inttoptr(args[0], ir.IntType(bits).as_pointer()))
            return context.get_dummy_value()

        return types.void(types.uint64, kind), codegen

    return poke


peek4, peek8 = _peek(types.uint32, 32), _peek(types.uint64, 64)
poke4, poke8 = _poke(types.uint32, 32), _poke(types.uint64, 64)


@njit
def divided_u(a, b):
    """Integer division; all ones by zero, as a GPU has it."""
    return a // b if b != 0 else ~b


@njit
def divided_s(a, b):
    """Towards zero."""
    if b == 0 or b == -1:
        return -a if b != 0 else a - a - 1
    q = a // b
    return q + 1 if q < 0 and q * b != a else q


@njit
def upper(a, b):
    """The upper 64 bits of a product of 128."""
    low, bits = np.uint64(0xFFFFFFFF), np.uint64(32)
    middle = (a >> bits) * (b & low) + (((a & low) * (b & low)) >> bits)
    other = (a & low) * (b >> bits) + (middle & low)
    return (a >> bits) * (b >> bits) + (middle >> bits) + (other >> bits)


@njit
def larger(a, b):
    """NaN if one is; -0 is below +0."""
    if a != a or b != b:
        return a + b
    if a == b:
        return b if math.copysign(1.0, a) < 0 else a
    return a if a > b else b


@njit
def inserted(a, b, at, count, bits):
    """b with `count` bits of a from bit `at` on."""
    ones = ~np.uint64(0)
    mask = ones if count >= 64 else (np.uint64(1) << np.uint64(count)) - np.uint64(1)
    mask = (mask << np.uint64(at)) if at < bits else np.uint64(0)
    return (np.uint64(b) & ~mask) | ((np.uint64(a) << np.uint64(at)) & mask if at < bits else np.uint64(0))


@njit
def directed(a, b, c, way):
    """a*b + c rounded down (0), towards zero (1), up (2). The product is exact in float64, the sum but for
    ``rest``.
    """
    x, y = np.float64(a) * np.float64(b), np.float64(c)
    total = x + y
    back = total - x
    rest = (x - (total - back)) + (y - back)
    near = np.float32(total)
    over = np.float64(near) - total
    if over == 0:
        over = -rest
    down = way == 0 or (way == 1 and total > 0)
    up = way == 2 or (way == 1 and total < 0)
    if over > 0 and down:
        return np.nextafter(near, np.float32(-np.inf))
    if over < 0 and up:
        return np.nextafter(near, np.float32(np.inf))
    return near


@njit
def tf32(cell):
    """The number that a product of matrices sees: 13 bits of the significand do not count."""
    return np.uint32(cell & np.uint32(0xFFFFE000)).view(np.float32)


@njit
def cut_off(total):
    """A float64 as float32, towards zero."""
    near = np.float32(total)
    return np.nextafter(near, np.float32(0.0)) if abs(np.float64(near)) > abs(total) else near


def _to(kind: Any) -> Any:
    @njit
    def convert(x, low, high):
        """Saturated; NaN is zero."""
        if x != x:
            return kind(0)
        if x >= high:
            return kind(high - 1) if high < 2.0**53 else kind(~kind(0)) if low == 0 else kind((1 << 63) - 1)
        return kind(low) if x <= low else kind(x)

    return convert


to_s32, to_u32, to_s64, to_u64 = map(_to, (np.int32, np.uint32, np.int64, np.uint64))


def source() -> str:
    """The interpreter's."""
    frequent, others = [], []
    for number, meaning in {OPCODES[name]: meaning for name, meaning in MEANINGS.items()}.items():
        line = "; ".join(
            f"{letter} = {_cell(kind, letter.upper())}"
            for letter, kind in zip("abcd", meaning.of, strict=False)
        )
        line = f"{line}; {_cell(meaning.to, 'T')} = {meaning.expression}"
        if number in FREQUENT:
            frequent += [f"elif op == {number}:", f"    for t in range({WARP}):", f"        {line}"]
        else:
            others += [f"elif op == {number}:", f"    {line}"]
    text = Path(__file__).with_name("template.py").read_text()
    for name, number in CONTROL.items():
        text = text.replace(f'CONTROL["{name}"]', str(number))
    for mark, lines, indent in (("# FREQUENT", frequent, 4), ("# OTHERS", others, 12)):
        text = text.replace(f"{' ' * indent}{mark}\n", "".join(f"{' ' * indent}{line}\n" for line in lines))
    return text


def _cell(kind: str, row: str) -> str:
    """A cell of a row, as a type: rows of 64 bits, the first 32 of which hold shorter values."""
    return f"file_{kind}[{row} + t]" if kind.endswith("64") else f"file_{kind}[2 * ({row} + t)]"


@functools.cache
def interpreter() -> Callable[..., int]:
    """The compiled loop; its source is a file of its own, so that Numba keeps what it compiles."""
    text = source()
    digest = hashlib.sha256((text + Path(__file__).read_text()).encode()).hexdigest()[:16]
    file = cache_dir() / "tests" / f"ptx_{digest}.py"
    if not file.exists():
        write(file, text)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module.run  # type: ignore[no-any-return]


def run(*arguments: Any) -> int:
    """Call the compiled loop; the first process that does so compiles it."""
    function = interpreter()
    if function.signatures:  # type: ignore[attr-defined]
        return function(*arguments)
    with once("ptx interpreter"):
        return function(*arguments)
