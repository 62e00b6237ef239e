"""The machine that runs PTX: what instructions compute, how threads part and meet, what it counts, and that
it sees what goes wrong.
"""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from support.ptx import machine
from support.ptx.machine import Counted, Region, launch
from support.ptx.text import PtxError, program

pytestmark = pytest.mark.ptx

HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"


def code(body: str, shared: int = 0) -> str:
    """A kernel of two pointers; %rd1 and %rd2 hold them, %r1 the number of the thread."""
    room = f".visible .shared .align 16 .b8 room[{shared}];\n" if shared else ""
    lines = "".join(f"\t{line.strip()}\n" for line in body.strip().splitlines())
    start = "ld.param.u64 %rd1, [k_0];\n\tld.param.u64 %rd2, [k_1];\n\tmov.u32 %r1, %tid.x;\n"
    head = f"{HEAD}{room}.visible .entry k(\n.param .u64 k_0,\n.param .u64 k_1\n)\n"
    return f"{head}{{\n\t{start}{lines}\tret;\n}}\n"


def aligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy that begins on a multiple of 256 bytes, as a GPU's memory does."""
    room = np.zeros(array.nbytes + 256, np.uint8)
    start = -room.ctypes.data % 256
    made = room[start : start + array.nbytes].view(array.dtype)
    made[:] = array
    return made


def run(
    body: str, x: Any, threads: int = 32, shared: int = 0, grid: int = 1, out: int = 64, **options: Any
) -> tuple[np.ndarray[Any, Any], Counted]:
    """The second array, 64-bit cells, after a launch; the first is ``x``."""
    given, made = aligned(np.asarray(x)), aligned(np.zeros(out, np.uint64))
    regions = [Region(given.ctypes.data, given.nbytes, False), Region(made.ctypes.data, made.nbytes)]
    counted = launch(
        program(code(body, shared)), (grid, 1, 1), (threads, 1, 1),
        [given.ctypes.data, made.ctypes.data], regions, **options,
    )  # fmt: skip
    return made, counted


def computed(instruction: str, kind: str, *operands: Any) -> list[Any]:
    """An instruction's results, one thread for each set of operands: ``kind`` is result's and operands'."""
    to, *of = (f"{t[0].replace('s', 'i')}{int(t[1:]) // 8}" for t in kind.split())
    count = len(operands[0])
    x = np.zeros((len(of), 32), np.uint64)
    for row, (dtype, values) in enumerate(zip(of, operands, strict=True)):
        x[row, :count] = np.array(values, dtype).view(f"u{dtype[1]}")
    loads = "\n".join(f"ld.global.u64 %rd{10 + i}, [%rd3+{256 * i}];" for i in range(len(of)))
    body = f"""
        mul.wide.u32 %rd4, %r1, 8;
        add.s64 %rd3, %rd1, %rd4;
        add.s64 %rd5, %rd2, %rd4;
        {loads}
        {instruction} %rd20, {", ".join(f"%rd{10 + i}" for i in range(len(of)))};
        st.global.u64 [%rd5], %rd20;
    """
    made, _ = run(body, x.reshape(-1))
    return list(made.view(to)[:: 8 // int(to[1])][:count])


def test_integers() -> None:
    a, b = [7, -7, 7, -7, 5, -(2**31)], [2, 2, -2, -2, 0, -1]
    assert computed("div.s32", "s32 s32 s32", a, b)[:4] == [3, -3, -3, 3]
    assert computed("rem.s32", "s32 s32 s32", a, b)[:4] == [1, -1, 1, -1]
    assert computed("shr.s32", "s32 s32 u32", [-8, -8, 8], [1, 40, 40]) == [-4, -1, 0]
    assert computed("shl.b64", "u64 u64 u32", [3, 3], [62, 64]) == [3 << 62 & (2**64 - 1), 0]
    big = [2**63 + 12345, 2**64 - 1, 77]
    assert computed("mul.hi.u64", "u64 u64 u64", big, big) == [x * x >> 64 for x in big]
    assert computed("mul.hi.s64", "s64 s64 s64", [-(2**62), 5], [9, -3]) == [-9 * 2**62 >> 64, -1]
    assert computed("mul.wide.s32", "s64 s32 s32", [-(2**31)], [2**31 - 1]) == [-(2**31) * (2**31 - 1)]
    assert computed("cvt.s64.s32", "s64 s32", [-5]) == [-5]
    assert computed("bfi.b64", "u64 u64 u64 u32 u32", [0xFF], [0xAAAA], [4], [4]) == [0xAAFA]
    assert computed("cvt.rzi.s32.f32", "s32 f32", [-2.7, 3e9, np.nan]) == [-2, 2**31 - 1, 0]


@pytest.mark.parametrize(("way", "toward"), [("rm", math.floor), ("rz", math.trunc), ("rp", math.ceil)])
def test_directed_rounding(way: str, toward: Any) -> None:
    """Against exact fractions."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(32).astype(np.float32) for _ in range(2))
    c = (rng.standard_normal(32) * 1e-3).astype(np.float32)
    c[:4], a[4:8] = -a[:4] * b[:4], 3.0
    got = computed(f"fma.{way}.f32", "f32 f32 f32 f32", a, b, c)
    for x, y, z, result in zip(a, b, c, got, strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        _, exponent = math.frexp(float(exact))
        unit = Fraction(2) ** (exponent - 24)
        assert Fraction(float(result)) == toward(exact / unit) * unit


def test_larger_and_smaller() -> None:
    a, b = [0.0, -0.0, np.nan, 1.0, -np.inf], [-0.0, 0.0, 1.0, np.nan, 2.0]
    larger = computed("max.NaN.f32", "f32 f32 f32", a, b)
    assert [math.copysign(1, x) for x in larger[:2]] == [1, 1]
    assert np.isnan(larger[2:4]).all()
    assert larger[4] == 2
    assert computed("max.f32", "f32 f32 f32", a, b)[2:] == [1, 1, 2]


def test_predicates() -> None:
    """True is also written -1."""
    body = """
        mov.pred %p1, -1;
        not.pred %p2, %p1;
        xor.pred %p3, %p1, %p2;
        and.pred %p4, %p3, %p1;
        selp.u64 %rd3, 1, 0, %p2;
        selp.u64 %rd4, 1, 0, %p3;
        selp.u64 %rd5, 1, 0, %p4;
        st.global.u64 [%rd2], %rd3;
        st.global.u64 [%rd2+8], %rd4;
        st.global.u64 [%rd2+16], %rd5;
    """
    assert list(run(body, [0], threads=1)[0][:3]) == [0, 1, 1]


def test_a_scope_has_registers_of_its_own() -> None:
    body = """
        mov.u64 %rd3, 5;
        {
        .reg .b64 %rd3;
        mov.u64 %rd3, 6;
        st.global.u64 [%rd2], %rd3;
        }
        st.global.u64 [%rd2+8], %rd3;
    """
    assert list(run(body, [0], threads=1)[0][:2]) == [6, 5]


def test_threads_part_and_meet() -> None:
    """A loop of as many turns as the thread's number; then all shuffle together."""
    body = """
        mov.u32 %r2, 0;
        mov.u32 %r3, 0;
        $again:
        setp.ge.u32 %p1, %r2, %r1;
        @%p1 bra $done;
        add.s32 %r3, %r3, %r2;
        add.s32 %r2, %r2, 1;
        bra.uni $again;
        $done:
        mov.u32 %r5, 31;
        mov.u32 %r6, -1;
        mov.u32 %r7, 1;
        shfl.sync.bfly.b32 %r4|%p2, %r3, %r7, %r5, %r6;
        mul.wide.u32 %rd4, %r1, 8;
        add.s64 %rd5, %rd2, %rd4;
        cvt.u64.u32 %rd6, %r4;
        st.global.u64 [%rd5], %rd6;
    """
    made, counted = run(body, [0])
    assert list(made[:32]) == [(t ^ 1) * ((t ^ 1) - 1) // 2 for t in range(32)]
    assert counted.of("shfl", counted.warps) == 1
    assert counted.of("add.s32 %r3", counted.warps) == 31
    assert counted.of("add.s32 %r3", counted.threads) == sum(range(32))


SHARE = """
    mov.u64 %rd3, room;
    shl.b32 %r2, %r1, 2;
    cvt.u64.u32 %rd4, %r2;
    add.s64 %rd5, %rd3, %rd4;
    {store}
    {barrier}
    xor.b32 %r3, %r2, 4;
    cvt.u64.u32 %rd6, %r3;
    add.s64 %rd7, %rd3, %rd6;
    ld.shared.u32 %r4, [%rd7];
    mul.wide.u32 %rd8, %r1, 8;
    add.s64 %rd9, %rd2, %rd8;
    cvt.u64.u32 %rd10, %r4;
    st.global.u64 [%rd9], %rd10;
"""


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_shared_memory(seed: int | None) -> None:
    body = SHARE.format(store="st.shared.u32 [%rd5], %r1;", barrier="bar.sync 0;")
    made, _ = run(body, [0], threads=64, shared=256, seed=seed)
    assert list(made) == [t ^ 1 for t in range(64)]


@pytest.mark.parametrize(
    ("store", "barrier", "shared", "says"),
    [
        ("st.shared.u32 [%rd5], %r1;", "", 256, "races with thread"),
        ("", "bar.sync 0;", 256, "nobody wrote"),
        ("st.shared.u32 [%rd5], %r1;", "bar.sync 0;", 128, "outside of every array"),
        ("st.shared.u32 [%rd5+2], %r1;", "bar.sync 0;", 512, "multiple of its width"),
    ],
)
def test_faults_of_shared_memory(store: str, barrier: str, shared: int, says: str) -> None:
    with pytest.raises(PtxError, match=says):
        run(SHARE.format(store=store, barrier=barrier), [0], threads=64, shared=shared)


GLOBAL = """
    mul.wide.u32 %rd4, %r1, {step};
    add.s64 %rd5, %rd2, %rd4;
    add.s64 %rd6, %rd1, %rd4;
    {access}
"""


@pytest.mark.parametrize(
    ("step", "access", "says"),
    [
        (8, "ld.global.u32 %r2, [%rd6+4];", "outside of every array"),
        (8, "st.global.u32 [%rd6], %r1;", "outside of every array"),  # it may be read only
        (4, "st.global.u64 [%rd5], %rd4;", "multiple of its width"),
        (0, "st.global.u32 [%rd5], %r1;", "races for memory"),
    ],
)
def test_faults_of_memory(step: int, access: str, says: str) -> None:
    with pytest.raises(PtxError, match=says):
        run(GLOBAL.format(step=step, access=access), np.zeros(63, np.uint32))


def test_blocks_that_race() -> None:
    """What one block reads another writes."""
    body = """
        mov.u32 %r2, %ctaid.x;
        mul.wide.u32 %rd4, %r2, 8;
        add.s64 %rd5, %rd2, %rd4;
        st.global.u32 [%rd5], %r2;
        ld.global.u32 %r3, [%rd2];
    """
    with pytest.raises(PtxError, match="races for memory"):
        run(body, [0], threads=1, grid=2)
    run(body.replace("global", "global.cg"), [0], threads=1, grid=2)  # as blocks speak to each other


def test_faults_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MOST_TURNS", 100)
    half = "setp.lt.u32 %p1, %r1, 16;\n@%p1 bra $low;\n"
    with pytest.raises(PtxError, match="waits at a barrier"):
        run(half + "bar.sync 0;\nbra.uni $end;\n$low:\nbar.sync 0;\n$end:", [0])
    with pytest.raises(PtxError, match="exchanges with thread"):
        run(half + "shfl.sync.bfly.b32 %r2|%p2, %r1, 1, 31, -1;\n$low:", [0])
    with pytest.raises(PtxError, match="does not end"):
        run("$again:\nbra.uni $again;", [0])
    with pytest.raises(PtxError, match=r"frobnicate\.f32 is not known"):
        run("frobnicate.f32 %f1, %f2;", [0])


def test_blocks_that_wait_for_each_other() -> None:
    """The first block waits for what the last one stores: only if they are there together it ends."""
    body = """
        mov.u32 %r2, %ctaid.x;
        setp.eq.u32 %p1, %r2, 0;
        @%p1 bra $wait;
        st.global.cg.u32 [%rd2], %r2;
        bra.uni $end;
        $wait:
        ld.global.cg.u32 %r3, [%rd2];
        setp.eq.u32 %p2, %r3, 0;
        @%p2 bra $wait;
        st.global.cg.u32 [%rd2+8], %r3;
        $end:
    """
    made, _ = run(body, [0], threads=1, grid=2, together=True)
    assert list(made[:2]) == [1, 1]


@pytest.mark.parametrize(("shift", "waves"), [(2, 1), (3, 2), (7, 32), (0, 1)])
def test_bank_conflicts(shift: int, waves: int) -> None:
    """32 banks of 4 bytes; the same word to several threads is one pass."""
    store = "st.shared.u32 [%rd5], %r1;"
    if not shift:  # one thread stores
        store = "setp.eq.u32 %p1, %r1, 0;\n@%p1 " + store
    stride = f"shl.b32 %r2, %r1, {shift};" if shift else "mov.u32 %r2, 0;"
    body = f"""
        {stride}
        cvt.u64.u32 %rd4, %r2;
        mov.u64 %rd3, room;
        add.s64 %rd5, %rd3, %rd4;
        {store}
        bar.sync 0;
        ld.shared.u32 %r3, [%rd5];
    """
    _, counted = run(body, [0], shared=4096)
    assert counted.of("ld.shared", counted.waves) == waves


@pytest.mark.parametrize(("step", "sectors"), [(4, 4), (8, 8), (32, 32)])
def test_sectors(step: int, sectors: int) -> None:
    body = GLOBAL.format(step=step, access="ld.global.u32 %r2, [%rd6];")
    _, counted = run(body, np.zeros(256, np.uint32))
    assert counted.of("ld.global", counted.sectors) == sectors
