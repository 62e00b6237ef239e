"""The machine model from what the system and LLVM report."""

import functools
import platform
from pathlib import Path

from bslite.engines.cpu.threads import available_cores
from bslite.machine import Machine

#: A virtual machine reports the L3 of the whole socket, which it shares with others: of 480 MB reported with
#: two cores, 64 MB had the speed of L3.
L3_PER_CORE = 32 << 20
#: LLVM's names of processors begin so that carry out dot products of bfloat16 as often as multiply-adds.
FULL_RATE = "znver"


def _cache_bytes(level: int, default: int) -> int:
    """The data cache size in bytes of the first core from sysfs, or the default."""
    for index in range(6):
        base = Path(f"/sys/devices/system/cpu/cpu0/cache/index{index}")
        try:
            if (
                int((base / "level").read_text()) != level
                or (base / "type").read_text().strip() == "Instruction"
            ):
                continue
            text = (base / "size").read_text().strip()
            return int(text[:-1]) << {"K": 10, "M": 20}[text[-1]]
        except (OSError, ValueError, KeyError):
            continue
    return default


def cpu_model() -> str:
    """The processor's own name, and LLVM's name for its instruction set."""
    from bslite.kernels.cpu.vector.target import simd

    try:
        with open("/proc/cpuinfo") as lines:
            named = next(
                (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), ""
            )
    except OSError:
        named = platform.processor()
    return f"{named} {simd().cpu}".strip()


@functools.cache
def described(threads: int) -> Machine:
    """The machine model without any measurement."""
    from bslite.kernels.cpu.vector.target import has_bfloat16_dots, simd

    model = simd()
    full_rate = has_bfloat16_dots() and model.cpu.startswith(FULL_RATE)
    return Machine(
        threads=threads,
        lanes=model.lanes,
        registers=model.registers,
        dot_cycles=1.0 if full_rate else 0.0,
        l1=_cache_bytes(1, 32 << 10),
        l2=_cache_bytes(2, 1 << 20),
        l3=min(_cache_bytes(3, 16 << 20), L3_PER_CORE * available_cores()),
    )
