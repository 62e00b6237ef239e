"""Every kernel as machine code for sm_80 and sm_90: registers as its occupancy says, no stack, no spills."""

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.process import python
from support.ptx.compiler import text_of

from bslite.explore.gpu import GpuMachine
from bslite.kernels.contracts.cuda.stack import StackVariant
from bslite.kernels.cuda import KERNELS
from bslite.kernels.cuda.runtime.compile import assembled
from bslite.kernels.cuda.runtime.kernel import Kernel
from bslite.kernels.cuda.stack.stack import BLOCK
from bslite.plan.cuda.recurrent.tiles import SLACK, Cut

pytestmark = pytest.mark.gpu_compile

CAPABILITIES = {"sm_80": (8, 0), "sm_90": (9, 0)}
SHARED = 48 << 10  # bytes a block may have without asking for more
MOST_SHARED = 227 << 10  # bytes a block may have at all, on sm_90
on_both = pytest.mark.parametrize("capability", CAPABILITIES.values(), ids=CAPABILITIES)


#: What the PTX has: loads from and stores to memory, instructions in float64.
ACCESSES = {
    "loads": r"\bld\.global", "stores": r"\bst\.global", "shared_accesses": r"\b(?:ld|st)\.shared",
    "float64": r"\.(?:rn\.)?f64\b",
}  # fmt: skip
#: What the machine code takes, as its assembler reports it, in registers and bytes.
RESOURCES = {"registers": r"used (\d+) registers", "stack": r"(\d+) stack", "shared": r"(\d+) bytes smem"}


@functools.cache
def records(kernel: str, capability: tuple[int, int]) -> list[dict[str, Any]]:
    """Of each sample: the variant, ACCESSES, RESOURCES, and the sizes of its parameters.

    Skips the test where the assembler is not installed.
    """
    pytest.importorskip("cuda.bindings.nvjitlink", reason="nvJitLink is not installed")
    made = []
    for variant in KERNELS[kernel].samples if KERNELS[kernel].since <= capability else ():
        ptx = text_of(kernel, variant, capability)
        record = {"kernel": kernel, "variant": dict(variant)}
        record |= {name: len(re.findall(pattern, ptx)) for name, pattern in ACCESSES.items()}
        record["parameters"] = [int(bits) // 8 for bits in re.findall(r"\.param \.[a-z](\d+) ", ptx)]
        _, report = assembled(ptx, capability)
        for name, pattern in RESOURCES.items():
            found = re.search(pattern, report)
            assert found or name == "shared", f"no {name} in the assembler's report:\n{report}"
            record[name] = int(found[1]) if found else 0
        made.append(record)
    return made


@on_both
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=lambda k: k.name)
def test_machine_code(kernel: Kernel, capability: tuple[int, int]) -> None:
    """All samples compile, within the registers the kernel declares, without stack or spills."""
    if kernel.since > capability:
        pytest.skip("a kernel for newer GPUs")
    # As the engine fills them in (`GpuLaunch`): an array is seven, of 8 bytes each.
    table = [8] * 7 * len(kernel.arrays) + [int(kind[1]) for kind in kernel.scalars.values()]
    for record in records(kernel.name, capability):
        assert record["registers"] <= kernel.registers, record
        assert record["stack"] == 0, record
        assert record["shared"] <= SHARED, record
        assert record["shared"] + kernel.dynamic(record["variant"]) <= MOST_SHARED, record
        assert record["parameters"] == table, record


@on_both
@pytest.mark.parametrize("kernel", ["recurrent", "recurrent_wide"])
def test_recurrent_blocks_take_what_the_planner_counts(kernel: str, capability: tuple[int, int]) -> None:
    """Registers (values that the planner counts fit, without spilling) and shared memory."""
    if KERNELS[kernel].since > capability:
        pytest.skip("a kernel for newer GPUs")
    found = records(kernel, capability)
    assert found
    for record in found:
        cut = Cut(**{name: record["variant"][name] for name in Cut._fields})
        assert cut.static <= record["shared"] <= cut.static + SLACK, record
        assert KERNELS[kernel].dynamic(record["variant"]) == cut.dynamic
        wide = kernel == "recurrent_wide"
        assert cut.fits(GpuMachine() if wide else GpuMachine(register_bytes=64 << 10)), record


@pytest.mark.parametrize(("blocks", "columns", "most"), [(2, 14, 128), (3, 14, 192), (4, 8, 184)])
def test_stacks_with_maxima_of_integers(blocks: int, columns: int, most: int) -> None:
    """As the planner takes them on newer GPUs; an SM has room for the warps that it counts on, no value is
    spilled, and a ReLU is a part of the maxima after it.
    """
    pytest.importorskip("cuda.bindings.nvjitlink", reason="nvJitLink is not installed")
    variant = StackVariant(" ".join([BLOCK] * blocks), columns, 1, 64, (64, 64), 1)
    ptx = text_of("stack", variant.constants(), (9, 0))
    assert "max.relu.s32" in ptx
    _, report = assembled(ptx, (9, 0))
    (registers,), (stack,) = (re.findall(RESOURCES[name], report)[:1] for name in ("registers", "stack"))
    assert int(registers) <= most
    assert int(stack) == 0


@pytest.fixture
def coded(tmp_path: Path) -> Callable[..., None]:
    """``coded(capability, check, ...)``: in a process that keeps code under ``tmp_path``, and compiles none
    if it is to be "kept", `code_of` makes an image and an entry for which ``check`` holds.
    """
    pytest.importorskip("cuda.bindings.nvjitlink", reason="nvJitLink is not installed")

    def run(capability: tuple[int, int], check: str, *arguments: str) -> None:
        script = f"""
import sys
import bslite.kernels.cuda
from bslite.kernels.cuda.runtime import compile, kernel
if "kept" in sys.argv:
    kernel.Kernel.ptx = None
image, entry = compile.code_of("copy", {capability}, {{"axes": 1, "threads": 256}})
assert entry.encode() in image and {check}
"""
        done = python(script, *arguments, NUMBA_ENABLE_CUDASIM=None, BSLITE_CACHE_DIR=str(tmp_path))
        assert done.returncode == 0, done.stderr

    return run


def test_code_is_kept(coded: Callable[..., None], tmp_path: Path) -> None:
    """A second process finds it on disk and compiles nothing; a file cut short is made anew."""
    elf = r"image[:4] == b'\x7fELF'"
    coded((9, 0), elf)
    coded((9, 0), elf, "kept")
    (file,) = tmp_path.glob("cuda/*/copy-*.cubin")
    whole = file.read_bytes()
    file.write_bytes(b"")
    coded((9, 0), elf)
    assert file.read_bytes() == whole


def test_a_gpu_newer_than_the_assembler(coded: Callable[..., None]) -> None:
    """The driver, which knows it, gets the PTX; that is kept, too."""
    for arguments in ((), ("kept",)):
        coded((99, 0), "b'.version' in image and image[-1] == 0", *arguments)


def test_one_pass_of_numba_serves_all_gpus() -> None:
    """The PTX for sm_80, made beside that for sm_90, is what the engine has made for sm_80 alone."""
    pytest.importorskip("cuda.bindings.nvjitlink", reason="numba-cuda's parts are not installed")
    kernel = KERNELS["recurrent_gates"]
    script = """
from bslite.kernels.cuda import KERNELS
kernel = KERNELS["recurrent_gates"]
print(kernel.ptx((8, 0), **kernel.samples[0]))
"""
    alone = python(script, NUMBA_ENABLE_CUDASIM=None)
    assert alone.returncode == 0, alone.stderr
    beside = text_of(kernel.name, kernel.samples[0], (8, 0))
    counted = r"_ZN[\w$]+|_cudapy_smem_\d+"  # names with the number of functions compiled before
    assert ".target sm_80" in beside
    assert re.sub(counted, "", beside).strip() == re.sub(counted, "", alone.stdout).strip()


@on_both
def test_a_stack_reads_and_writes_once(capability: tuple[int, int]) -> None:
    """A deeper stack of pools loads the columns at its sides and its numbers per channel more, and nothing
    else: no intermediate value is in memory or in shared memory, and nothing is computed in float64.

    A turn of the loop is there twice where there are several windows: with and without tests of edges.
    """
    stacks = records("stack", capability)
    pools = [r for r in stacks if r["variant"]["stages"].startswith("max:3,3,1,1")]
    assert len(pools) == 4
    for record in pools:
        variant = record["variant"]
        depth = variant["stages"].count("max")
        row = variant["columns"] + 2 * depth
        numbers = 2 * depth + 2 * (depth + 1)  # scale and shift; sizes of each image
        turns = variant["turn"] * (1 if depth == 1 else 2)
        assert record["loads"] <= turns * row + numbers, record
        assert record["stores"] <= turns * variant["columns"], record
    for record in stacks:
        assert record["shared_accesses"] == record["float64"] == 0, record


INSTRUCTIONS = r"(?:fma.rn|(?:ld|st).(?:shared|local))[a-z0-9.]*"
PRODUCTS = [(name, variant) for name in ("gemm_pairs", "gemm") for variant in KERNELS[name].samples]


@pytest.mark.parametrize(("kernel", "variant"), PRODUCTS, ids=str)
def test_the_inner_loop_of_a_product(kernel: str, variant: dict[str, Any]) -> None:
    """Eight terms written out: a multiply-add for each of a thread's products, a 16-byte read for every four
    of its operands, no other read of shared memory, and nothing in local memory. A batch norm on the way
    there is a multiply-add for each element that a thread moves. On tensor cores three instructions for eight
    rows by eight columns by eight terms, and a read of 8 bytes for two terms of a row or column.
    """
    pytest.importorskip("cuda.bindings.nvjitlink", reason="the compiler's parts are not installed")
    text = text_of(kernel, variant)
    found = re.findall(INSTRUCTIONS, text)
    block_rows, block_cols, rows, cols = variant["tile"]
    if variant["tensor"]:
        assert len(re.findall(r"\bmma\.sync", text)) == 3 * rows * cols / 4
        assert found.count("ld.shared.v2.f32") == rows + cols / 2
        assert not [i for i in found if re.match(r"(ld|st)\.local", i)]
        return
    reads = [i for i in found if i.startswith("ld.shared")]
    assert set(reads) == {"ld.shared.v4.f32"}
    assert len(reads) <= 8 * (rows + cols) / 4
    assert not [i for i in found if re.match(r"(ld|st)\.local", i)]
    if variant["code"] in ("identity", "relu"):  # other activations have multiply-adds of their own
        threads = block_rows // rows * (block_cols // cols)
        before = 8 * block_rows // threads if variant["before"] == "affine" else 0
        assert found.count("fma.rn.f32") == 8 * rows * cols + before
