"""The SIMD that the compiler emits for this process, as LLVM itself shows it.

Numba compiles for the host CPU, or for ``NUMBA_CPU_NAME`` / ``NUMBA_CPU_FEATURES`` where those are set.
A probe of one fused multiply-add on 16 floats, compiled for the same target, shows which registers are used.
"""

import ctypes
import functools
import platform
import re
import sys
from typing import NamedTuple

import llvmlite.binding as llvm
from numba.core import config
from numba.core.codegen import get_host_cpu_features

_PROBE = """
declare <16 x float> @llvm.fmuladd.v16f32(<16 x float>, <16 x float>, <16 x float>)
define <16 x float> @probe(ptr %p) {
  %a = load <16 x float>, ptr %p
  %r = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %a, <16 x float> %a, <16 x float> %a)
  ret <16 x float> %r
}
"""


_DOTS = """
declare <{words} x i32> @llvm.{multiply}(<{halves} x i16>, <{halves} x i16>)
define <{words} x i32> @probe(<{words} x i32> %c, <{halves} x i16> %a, <{halves} x i16> %b) {{
  %p = call <{words} x i32> @llvm.{multiply}(<{halves} x i16> %a, <{halves} x i16> %b)
  %r = add <{words} x i32> %c, %p
  ret <{words} x i32> %r
}}
"""
#: AVX has no integers in registers of 8 lanes, AVX2 has; the first form of AVX-512 has none of 16 bits.
_INTEGERS = """
define <{count} x i{bits}> @probe(<{count} x i{bits}> %a, <{count} x i{bits}> %b) {{
  %r = add <{count} x i{bits}> %a, %b
  ret <{count} x i{bits}> %r
}}
"""
_HALVES = """
define <8 x float> @probe(<8 x half> %a) {
  %r = fpext <8 x half> %a to <8 x float>
  ret <8 x float> %r
}
"""
#: The instruction that multiplies pairs of int16 and adds both products, by the lanes of a register.
MULTIPLY = {4: "x86.sse2.pmadd.wd", 8: "x86.avx2.pmadd.wd", 16: "x86.avx512.pmaddw.d.512"}
#: CPUs, by LLVM's names, that divide registers of 16 lanes in fewer cycles than an approximate reciprocal
#: and its corrections take. Measured on these alone; Intel's take 16.
DIVIDING = ("znver4", "znver5")
#: CPUs on which a register of powers of two, from which lanes are picked, and a short polynomial take fewer
#: cycles than a long polynomial. Measured on this one alone.
PICKING = ("znver4",)
#: Whether instructions are those of x86.
X86 = platform.machine().lower() in ("x86_64", "amd64")
#: Linux: the call `arch_prctl`, its request for a permission, and the registers of AMX's tiles.
ARCH_PRCTL, REQUEST, TILE_DATA = 158, 0x1023, 18


class Simd(NamedTuple):
    """Lanes (float32) of a vector register, number of registers, LLVM's name and features of the CPU."""

    lanes: int
    registers: int
    cpu: str
    features: str


@functools.cache
def simd() -> Simd:
    """The SIMD model of the code Numba emits in this process."""
    cpu = config.CPU_NAME or llvm.get_host_cpu_name()
    # As in Numba: a CPU's name alone leaves the features at the host's.
    features = get_host_cpu_features() if config.CPU_FEATURES is None else config.CPU_FEATURES
    registers = set(re.findall("%[xyz]mm", assembly_of(_PROBE, cpu, features)))

    def adds(count: int, bits: int, register: str) -> bool:
        text = assembly_of(_INTEGERS.format(count=count, bits=bits), cpu, features)
        return bool(re.search(rf"vpadd.*{register}", text))

    if "%zmm" in registers and adds(32, 16, "%zmm"):
        return Simd(16, 32, cpu, features)
    if registers & {"%zmm", "%ymm"} and adds(8, 32, "%ymm"):
        return Simd(8, 16, cpu, features)
    return Simd(4, 16 if X86 else 32, cpu, features)


def assembly_of(text: str, cpu: str, features: str) -> str:
    """LLVM's assembly of a module for a CPU."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(cpu=cpu, features=features, opt=3)
    return str(machine.emit_assembly(llvm.parse_assembly(text)))


@functools.cache
def has_dots() -> bool:
    """Whether one instruction adds products of the numbers in a lane to a sum of int32: VNNI."""
    lanes, _, cpu, features = simd()
    if not X86 or lanes == 4:
        return False
    text = _DOTS.format(words=lanes, halves=2 * lanes, multiply=MULTIPLY[lanes])
    return "vpdpwssd" in assembly_of(text, cpu, features)


@functools.cache
def widens_halves() -> bool:
    """Whether an instruction makes float32 of numbers in float16; a call of a function takes its place on x86
    before F16C.
    """
    _, _, cpu, features = simd()
    return not X86 or "vcvtph2ps" in assembly_of(_HALVES, cpu, features)


def picks_lanes() -> bool:
    """Whether one instruction picks lanes of a register by the numbers in another: AVX-512, AVX2."""
    return X86 and simd().lanes > 4


def divides() -> bool:
    """Whether a quotient is to be the instruction's, and not made of an approximate reciprocal."""
    lanes, _, cpu, _ = simd()
    return lanes != 16 or cpu in DIVIDING


def picks_powers() -> bool:
    """Whether powers of two are to be picked from a register, and not made by polynomials alone."""
    lanes, _, cpu, _ = simd()
    return lanes == 16 and cpu in PICKING


@functools.cache
def has_bfloat16_dots() -> bool:
    """Whether one instruction adds the dot product of two bfloat16 in each lane to a float32: AVX512_BF16."""
    lanes, _, _, features = simd()
    return X86 and lanes == 16 and "+avx512bf16" in features.split(",")


@functools.cache
def has_tiles() -> bool:
    """Whether this process computes products of bfloat16 on AMX: code is compiled for it, and the system
    permits it.

    Linux wants to be asked once a process; its threads and forked children inherit the permission.
    """
    if not X86 or not sys.platform.startswith("linux") or "+amx-bf16" not in simd().features.split(","):
        return False
    return int(ctypes.CDLL(None).syscall(ARCH_PRCTL, REQUEST, TILE_DATA)) == 0
