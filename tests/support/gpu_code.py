"""What the code of a kernel takes, as PTX and as machine code; no GPU needed."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from bslite.kernels.cuda.runtime.kernel import Kernel
from support.ptx.compiler import text_of


def record_of(kernel: Kernel, variant: Mapping[str, Any], capability: tuple[int, int]) -> dict[str, Any]:
    """Kernel, variant, registers, bytes of stack and of shared memory, loads and stores, sizes of parameters.

    Skips the test where the assembler is not installed.
    """
    pytest.importorskip("cuda.bindings.nvjitlink", reason="nvJitLink is not installed")
    ptx = text_of(kernel.name, variant, capability)
    return {
        "kernel": kernel.name,
        "variant": dict(variant),
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
    from bslite.kernels.cuda.runtime.compile import assembled

    _, text = assembled(ptx, capability)
    found = {
        "registers": re.search(r"used (\d+) registers", text),
        "stack": re.search(r"(\d+) stack", text),
        "shared": re.search(r"(\d+) bytes smem", text),
    }
    missing = [k for k, m in found.items() if m is None and k != "shared"]
    if missing:
        raise RuntimeError(f"no {missing} in the assembler's report:\n{text}")
    return {k: int(m.group(1)) if m else 0 for k, m in found.items()}
