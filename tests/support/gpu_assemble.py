"""Compiles every sample of every kernel for one GPU generation, to PTX and to machine code; no GPU needed.

    python tests/support/gpu_assemble.py 9 0 [KERNEL ...]

Prints one JSON object a line: kernel, variant, registers, bytes of spills, of shared memory, of PTX, sizes of
parameters. A process of its own, because the tests' own may have numba.cuda's simulator in place of its
compiler.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any


def assembled(capability: tuple[int, int], names: list[str]) -> Iterator[dict[str, Any]]:
    """One record for each kernel and sample."""
    from bslite.kernels.cuda import KERNELS

    for kernel in (KERNELS[n] for n in names or sorted(KERNELS) if KERNELS[n].since <= capability):
        for variant in kernel.samples:
            ptx = kernel.ptx(capability, **variant)
            yield {
                "kernel": kernel.name,
                "variant": dict(variant),
                "ptx": len(ptx),
                **accesses(ptx),
                "parameters": [int(bits) // 8 for bits in re.findall(r"\.param \.[a-z](\d+) ", ptx)],
                **resources(ptx, capability),
            }


def accesses(ptx: str) -> dict[str, int]:
    """Loads from and stores to memory that the code has, and instructions in float64."""
    count = {"loads": r"\bld\.global", "stores": r"\bst\.global", "shared_accesses": r"\b(?:ld|st)\.shared"}
    count["float64"] = r"\.(?:rn\.)?f64\b"
    return {name: len(re.findall(pattern, ptx)) for name, pattern in count.items()}


def resources(ptx: str, capability: tuple[int, int]) -> dict[str, int]:
    """What the machine code of a kernel takes, as its assembler reports it."""
    from bslite.kernels.cuda.runtime.compile import assembled as assemble

    _, text = assemble(ptx, capability)
    found = {
        "registers": re.search(r"used (\d+) registers", text),
        "stack": re.search(r"(\d+) stack", text),
        "shared": re.search(r"(\d+) bytes smem", text),
    }
    missing = [k for k, m in found.items() if m is None and k != "shared"]
    if missing:
        raise RuntimeError(f"no {missing} in the assembler's report:\n{text}")
    return {k: int(m.group(1)) if m else 0 for k, m in found.items()}


if __name__ == "__main__":
    major, minor, *kernels = sys.argv[1:]
    for record in assembled((int(major), int(minor)), kernels):
        print(json.dumps(record), flush=True)
