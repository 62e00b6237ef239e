"""PTX as numbers: one row of integers per instruction. Only what the compiler makes of our kernels is known;
anything else is an error that names it (PTX ISA 9.0).
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from support.ptx.semantics import CONTROL, OPCODES

Rows = npt.NDArray[np.int64]

#: Columns of an instruction: what, where to, from what, under which predicate (a row, -1: always), whether
#: that must be false, the displacement of an address, and the values an access takes, at most four; or the
#: four results of a product of matrices and the operands beyond the fourth.
COLUMNS = (
    "op", "to", "a", "b", "c", "d", "guard", "unless", "displacement", "width", "values",
    "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9",
)  # fmt: skip
SPECIAL = [f"%{what}.{axis}" for what in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"]
_REGISTER = re.compile(r"%[a-zA-Z_]\w*(?:\.[xyz])?")
_LABEL = re.compile(r"^([$\w]+):$")
_SHARED = re.compile(r"\.shared\s+\.align\s+(\d+)\s+\.b8\s+([\w$]+)\[(\d*)\]")
_CONST = re.compile(r"\.const\s+\.align\s+\d+\s+\.b8\s+([\w$]+)\[\d+\]\s*=\s*\{([^}]*)\}")
#: What instructions say of caches and of an order of accesses that this machine has anyway.
_HINTS = {"cg", "ca", "cs", "nc", "relaxed", "acquire", "release", "volatile", "gpu", "sys", "uni"}
_BARE = {"ret": "ret", "exit": "ret", "bar.sync": "bar", "barrier.sync": "bar"}
_MMA = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
#: Accesses by which blocks speak to each other on purpose.
_COHERENT = {"cg", "relaxed", "acquire", "release", "volatile"}


@dataclass
class Program:
    """A kernel. Registers, numbers that occur in it, parameters and special registers are rows alike of one
    file of 64 bit cells: ``constants`` are those with a value of their own.
    """

    rows: dict[str, int] = field(default_factory=dict)
    constants: dict[int, int] = field(default_factory=dict)
    parameters: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    instructions: Rows = field(default_factory=lambda: np.zeros((0, len(COLUMNS)), np.int64))
    lines: list[str] = field(default_factory=list)
    shared: int = 0
    memory: bytes = b""  # of `.const`

    def row(self, name: str) -> int:
        return self.rows.setdefault(name, len(self.rows))

    def number(self, bits: int) -> int:
        row = self.row(f"={bits & 0xFFFFFFFFFFFFFFFF:#x}")
        self.constants[row] = bits & 0xFFFFFFFFFFFFFFFF
        return row


class PtxError(Exception):
    """This machine does not know the code, or the code did what no kernel may."""


def program(ptx: str) -> Program:
    """The one kernel in a PTX file."""
    ptx = re.sub(r"//[^\n]*", "", ptx)
    made, symbols = Program(), {}
    for align, name, size in _SHARED.findall(ptx):
        made.shared += -made.shared % int(align)
        symbols[name] = made.shared
        made.shared += int(size or 0)  # without a size: as much as the launch says, and so the last
    for name, numbers in _CONST.findall(ptx):
        made.memory += bytes(-len(made.memory) % 16)
        symbols[name] = len(made.memory)
        made.memory += bytes(int(n) for n in numbers.split(","))
    head, body = re.search(r"\.entry\s+[\w$]+\s*\(([^)]*)\)[^{]*\{(.*)\}", ptx, re.S).groups()  # type: ignore[union-attr]
    for bits, name in re.findall(r"\.param\s+\.[a-z](\d+)\s+([\w$]+)", head):
        made.parameters.append(name)
        made.sizes.append(int(bits) // 8)
    for name in (*SPECIAL, *made.parameters):
        made.row(name)
    labels: dict[str, int] = {}
    found: list[tuple[str, str, str]] = []
    for statement in _statements(body):
        if label := _LABEL.match(statement):
            labels[label[1]] = len(found)
        else:
            guard, rest = re.match(r"(?:@(!?%\w+)\s+)?(.*)", statement, re.S).groups()  # type: ignore[union-attr]
            mnemonic, _, operands = rest.partition(" ")
            found.append((guard or "", mnemonic, operands.strip()))
            made.lines.append(statement)
    table = [_instruction(made, symbols, labels, *parts) for parts in found]
    made.instructions = np.array([[row.get(c, 0) for c in COLUMNS] for row in table], np.int64)
    return made


def _statements(body: str) -> Iterator[str]:
    """Instructions and labels. Registers that a scope within declares hide those outside: they get names of
    their own.
    """
    scopes: list[dict[str, str]] = []
    count = 0
    for line in body.splitlines():
        text = " ".join(line.split())
        while text and text[0] in "{}":
            if text[0] == "{":
                scopes.append({})
                count += 1
            else:
                scopes.pop()
            text = text[1:].strip()
        if text.startswith(".reg") and scopes:
            scopes[-1] |= {name: f"{name}_{count}" for name in _REGISTER.findall(text)}
        if not text or text.startswith((".reg", ".loc", ".pragma", ".shared")):
            continue
        if _LABEL.match(text):
            yield text
            continue
        if not text.endswith(";"):
            raise PtxError(f"not an instruction: {text!r}")
        for scope in reversed(scopes):
            text = _REGISTER.sub(lambda found, names=scope: names.get(found[0], found[0]), text)
        yield from filter(None, (part.strip() for part in text.split(";")))


def _instruction(
    p: Program, symbols: dict[str, int], labels: dict[str, int], guard: str, mnemonic: str, operands: str
) -> dict[str, int]:
    row = {"guard": p.row(guard.lstrip("!")) if guard else -1, "unless": int(guard.startswith("!"))}
    parts = mnemonic.split(".")
    given = [x.strip() for x in re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*", operands)]

    def source(text: str) -> int:
        if _REGISTER.fullmatch(text) or text in p.parameters:
            return p.row(text)
        if text in symbols:
            return p.number(symbols[text])
        if text[:2] in ("0f", "0d"):
            return p.number(int(text[2:], 16))
        return p.number(int(text, 0))

    def address(text: str) -> dict[str, int]:
        base, _, more = text.strip("[]").partition("+")
        return {"a": source(base), "displacement": int(more or 0)}

    def several(text: str) -> list[str]:
        return [x.strip() for x in text.strip("{}").split(",")]

    if mnemonic in ("bra", "bra.uni"):
        return {**row, "op": CONTROL["bra"], "to": labels[operands]}
    if mnemonic in _BARE:
        return {**row, "op": CONTROL[_BARE[mnemonic]]}
    if mnemonic == "bar.red.or.pred":
        return {**row, "op": CONTROL["bar.or"], "to": p.row(given[0]), "a": source(given[2])}
    if parts[0] in ("membar", "fence"):
        return {**row, "op": CONTROL["nothing"]}
    if parts[:3] == ["shfl", "sync", "bfly"]:
        value, _, inside = given[0].partition("|")
        a, b, c, d = map(source, given[1:])
        return {**row, "op": CONTROL["shfl.bfly"], "to": p.row(value), "a": a, "b": b, "c": c, "d": d,
                "v0": p.row(inside or "%ignored")}  # fmt: skip
    if mnemonic == _MMA:
        made, left, right, added = map(several, given)
        rows = [*map(p.row, made), *map(source, (*right, *added))]
        operands_of = {"abcd"[i]: source(text) for i, text in enumerate(left)}
        return {**row, "op": CONTROL["mma"], **operands_of, **{f"v{i}": r for i, r in enumerate(rows)}}
    if parts[0] in ("ld", "st") and parts[1] == "param":
        p_row = source(given[1].strip("[]"))
        op = OPCODES["cvt.s64.s32" if parts[2] == "s32" else "mov.b64"]
        return {**row, "op": op, "to": p.row(given[0]), "a": p_row}
    if parts[0] in ("ld", "st"):
        kinds = [x for x in parts[1:] if x not in _HINTS]
        space, kind = kinds[0], kinds[-1]
        width = int(kind[1:]) // 8
        where, what = (given[1], given[0]) if parts[0] == "ld" else (given[0], given[1])
        values = several(what)
        name = f"{parts[0]}.{space}" + (".coherent" if _COHERENT & set(parts) else "")
        if name not in CONTROL or width not in (4, 8):
            raise PtxError(f"{mnemonic} is not known")
        wide = {"op": CONTROL[name], "width": width, "values": len(values), "b": int(kind == "s32")}
        rows = [p.row(v) if parts[0] == "ld" else source(v) for v in values]
        return {**row, **wide, **address(where), **{f"v{i}": r for i, r in enumerate(rows)}}
    if parts[0] == "mov" and given[0].startswith("{"):
        low, high = several(given[0])
        return {**row, "op": CONTROL["unpack"], "to": p.row(low), "b": p.row(high), "a": source(given[1])}
    if parts[0] == "mov" and given[1].startswith("{"):
        low, high = several(given[1])
        return {**row, "op": CONTROL["pack"], "to": p.row(given[0]), "a": source(low), "b": source(high)}
    name = ".".join(x for x in parts if x not in _HINTS)
    if name not in OPCODES:
        raise PtxError(f"{mnemonic} is not known")
    sources = {"abcd"[i]: source(text) for i, text in enumerate(given[1:])}
    return {**row, "op": OPCODES[name], "to": p.row(given[0]), **sources}


def bits_of(value: float | int, size: int) -> int:
    """A parameter's bits, in a cell."""
    if isinstance(value, float):
        return int.from_bytes(struct.pack("<f" if size == 4 else "<d", value), "little")
    return value & (2 ** (8 * size) - 1)
