"""Python source of the kernel for one stack: every row, column and stage written out, values in variables.

It is text, not closures over loops: the rows of a window that a thread holds, the reductions that windows
share, and the columns that may lie beyond the edge differ from line to line, and all are known beforehand.
numba compiles the text like any other function, the simulator runs it, and tracebacks show it (linecache
knows it).
"""

import hashlib
import linecache
from collections.abc import Callable, Sequence
from typing import Any

from bslite.kernels.contracts.cuda.stack import Pointwise, by_bits
from bslite.kernels.cuda.stack.geometry import Geometry
from bslite.kernels.cuda.stack.maxima import shared_blocks

HEAD = (
    "def stack(x, y, z, v, c, sizes, channels, strips, groups, bands, band_rows, "
    "x_image, x_row, x_col, x_channel, y_image, y_row, y_col, y_channel, "
    "z_image, z_row, z_col, z_channel, v_image, v_row, v_col, v_channel):"
)
#: Values for elements beyond the edge: they change no result.
BEYOND = {"max": "LEAST", "avg": "MINUS_ZERO", "depthwise": "ZERO", None: "ZERO"}
OUTSIDE = "zv"  # arrays of tensors from outside, in order


def function(text: str, names: dict[str, Any]) -> Callable[..., None]:
    """Return the function ``stack`` that ``text`` defines; its globals are ``names``."""
    filename = f"<bslite stack {hashlib.sha256(text.encode()).hexdigest()[:12]}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    exec(compile(text, filename, "exec"), names)
    made: Callable[..., None] = names["stack"]
    return made


class _Source:
    """The lines of the function, and the state a thread carries from one turn of its loop to the next."""

    def __init__(
        self, stages: str, columns: int, turn: int, threads: int, steps: tuple[int, int], threes: int
    ) -> None:
        self.geometry = g = Geometry(stages, columns, turn)
        self.levels, self.counts, self.inside, self.last = g.levels, g.counts, g.inside, g.last
        self.window, self.column = g.window, g.column
        self.threads, self.steps, self.threes = threads, steps, threes
        self.names: dict[str, Any] = {}
        self.lines: list[str] = []
        self.depth = 1
        self.constants = 0  # rows of c used so far
        self.fresh = 0
        self.free = False  # whether this turn is known to be away from all edges

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def name(self, letter: str) -> str:
        self.fresh += 1
        return f"{letter}{self.fresh}"

    def constant(self, name: str) -> str:
        """Load a number of this thread's channel, the next row of c."""
        self.add(f"{name} = c[u64(i64({self.constants}) * channels + channel)]")
        self.constants += 1
        return name

    # -- the parts ---------------------------------------------------------------------------------

    def whole(self) -> str:
        self.add("block = u(cuda.blockIdx.x)")
        self.add("rest = u(block // u(groups))")
        self.add("group = u(block - u(rest * u(groups)))")
        self.add("image = u(rest // u(bands))")
        self.add("band = u(rest - u(image * u(bands)))")
        self.add(f"lane = u(u(group * u({self.threads})) + u(cuda.threadIdx.x))")
        self.add("strip = u(lane // u(channels))")
        self.add("channel = i64(u(lane - u(strip * u(channels))))")
        self.add("if strip >= u(strips):")
        self.add("    return")
        self.sizes()
        self.parameters()
        self.state()
        self.add(f"x_turn = i64(first_turn) * {self.geometry.turn} * x_row")
        self.add(f"y_turn = y_at + i64(first_turn) * {len(self.geometry.rows[-1])} * y_row")
        if self.last > 1:
            self.away_from_edges()
        self.add("for t in range(first_turn, last_turn):")
        self.depth += 1
        if self.last > 1:
            self.add("if first_free <= t < last_free:")
            self.depth, self.free = self.depth + 1, True
            self.body()
            self.depth, self.free = self.depth - 1, False
            self.add("else:")
            self.depth += 1
            self.body()
            self.depth -= 1
        else:
            self.body()
        self.add(f"x_turn += {self.geometry.turn} * x_row")
        self.add(f"y_turn += {len(self.geometry.rows[-1])} * y_row")
        return "\n".join([HEAD, *self.lines, ""])

    def sizes(self) -> None:
        """Write the sizes, this thread's columns and rows, and the places of its elements."""
        last = self.last
        for name, step in zip("xy", self.steps, strict=True):
            if step:
                self.add(f"{name}_col = {step}")
        for k in range(last + 1):
            self.add(f"height{k} = i32(sizes[u64({2 * k})])")
            self.add(f"width{k} = i32(sizes[u64({2 * k + 1})])")
        columns = self.geometry.columns
        self.add(f"col{last} = i32(min(i32(strip) * {columns}, width{last} - {columns}))")
        self.add("begin = i32(i32(band) * band_rows)")
        self.add(f"end = i32(min(begin + band_rows, height{last}))")
        self.add(f"row{last} = begin")
        for k in range(last, 0, -1):
            w = self.window(k)
            self.add(f"col{k - 1} = i32(col{k} * {w.col_step} - {w.left})")
            self.add(f"row{k - 1} = i32(row{k} * {w.row_step} - {w.top})")
        for k in range(last):
            self.add(f"from_left{k}, from_right{k} = col{k}, i32(width{k} - col{k})")
        rows = self.geometry.rows
        self.add(f"first_turn = i32(row0 // {self.geometry.turn})")
        self.add(f"last_turn = i32((end - 1 - ({rows[last][0]})) // {len(rows[last])} + 1)")
        self.add("x_image_at = i64(image) * x_image + channel * x_channel")
        self.add("x_at = x_image_at + i64(col0) * x_col")
        for c in range(self.counts[0]):
            if self.clamped(0, c):
                self.add(f"x_at{c} = x_image_at + i64({self.column(0, c)}) * x_col")
        self.add(f"y_at = i64(image) * y_image + channel * y_channel + i64(col{last}) * y_col")
        used = sum(p.name.startswith(("with:", "by:")) for level in self.levels for p in level.chain)
        for letter in OUTSIDE[:used]:
            self.add(f"{letter}_at = i64(image) * {letter}_image + channel * {letter}_channel")

    def clamped(self, k: int, c: int) -> bool:
        """Return whether column c of level k may be beyond the image's left or right edge."""
        lo, hi = self.inside[k]
        return not self.free and not lo <= c <= hi

    def away_from_edges(self) -> None:
        """Write the range of turns in which no row or column of any level is beyond an edge: they need no
        tests. With several windows it pays to compile the turn twice.
        """
        last = self.last
        made = self.geometry.rows
        self.add(f"first_free = i32(-((-begin + ({made[last][0]})) // {len(made[last])}))")
        self.add(f"last_free = i32((end - 1 - ({made[last][-1]})) // {len(made[last])} + 1)")
        for k in range(last):
            count = len(made[k])
            self.add(f"first_free = i32(max(first_free, {-(made[k][0] // count)}))")
            self.add(f"last_free = i32(min(last_free, (height{k} - 1 - ({made[k][-1]})) // {count} + 1))")
            self.add(f"if col{k} < 0 or col{k} + {self.counts[k]} > width{k}:")
            self.add("    last_free = first_free")

    def parameters(self) -> None:
        """Write the loads of the channel's numbers, in the order of the stages."""
        for k, level in enumerate(self.levels):
            w = level.window
            if w is not None and w.kind == "depthwise":
                for tap in range(w.rows * w.cols):
                    self.constant(f"tap{k}_{tap}")
                if w.last:
                    self.constant(f"bias{k}")
            for i, stage in enumerate(level.chain):
                if stage.name == "affine":
                    self.constant(f"scale{k}_{i}")
                    self.constant(f"shift{k}_{i}")

    def state(self) -> None:
        """Write the rows that windows need from before this turn; before the first turn any value will do."""
        self.held: list[list[list[str]]] = [[]]
        for k in range(1, len(self.levels)):
            w = self.window(k)
            count = self.counts[k - 1] if w.kind == "depthwise" else self.counts[k]
            rows = [[f"held{k}_{r}_{c}" for c in range(count)] for r in range(w.rows - 1)]
            for row in rows:
                for name in row:
                    self.add(f"{name} = ZERO")
            self.held.append(rows)

    def body(self) -> None:
        """Write one turn: as many rows of each level as the rows before it allow."""
        made = self.geometry.rows
        last = self.last
        lines = [self.level_row(0, a, None) for a in made[0]]
        for k in range(1, last + 1):
            w = self.window(k)
            history = self.held[k] + lines
            ends = [i for i, a in enumerate(made[k - 1]) if (a + w.top - w.rows + 1) % w.row_step == 0]
            windows = [history[i : i + w.rows] for i in ends]
            values = self.reduced_rows(k, windows)
            lines = [self.level_row(k, a, row) for a, row in zip(made[k], values, strict=True)]
            keep = history[len(history) - (w.rows - 1) :]
            for names, held in zip(keep, self.held[k], strict=True):
                for name, to in zip(names, held, strict=True):
                    self.add(f"{to} = {name}")

    def reduced_rows(self, k: int, windows: Sequence[Sequence[Sequence[str]]]) -> list[list[str]]:
        """Return the elements of the rows of level k, from the rows in each window."""
        w, found = self.window(k), []
        if w.kind == "max":
            largest = self.by_threes if self.by_bits(k - 1) else self.largest
            columns = [largest([[row[c] for row in rows] for rows in windows]) for c in range(self.counts[k])]
            return [list(row) for row in zip(*columns, strict=True)] if windows else []
        for rows in windows:
            if w.kind == "avg":
                found.append([self.total([row[c] for row in rows]) for c in range(self.counts[k])])
                continue
            made = []
            for c in range(self.counts[k]):
                acc = f"bias{k}" if w.last else "ZERO"
                for tap in range(w.rows * w.cols):
                    value = rows[tap // w.cols][c * w.col_step + tap % w.cols]
                    to = self.name("d")
                    self.add(f"{to} = fma({value}, tap{k}_{tap}, {acc})")
                    acc = to
                made.append(acc)
            found.append(made)
        return found

    def level_row(self, k: int, a: int, row: list[str] | None) -> list[str]:
        """Write one row of level k, the chain applied; reduced along itself for the next window, or stored.

        A row beyond the edge holds the next window's neutral values.
        """
        last = k == self.last
        per_turn = len(self.geometry.rows[k])
        at = self.name("r")
        self.add(f"{at} = i32(t * {per_turn} + ({a}))")
        if not self.free:
            self.add(f"if begin <= {at} < end:" if last else f"if 0 <= {at} < height{k}:")
            self.depth += 1
        if row is None:
            row = [self.name("a") for _ in range(self.counts[0])]
            self.add(f"x_line = x_turn + {a} * x_row")
            for c, name in enumerate(row):
                place = f"x_at{c}" if self.clamped(0, c) else f"x_at + {self.steps[0] * c or f'{c} * x_col'}"
                self.add(f"{name} = x[u64(x_line + {place})]")
        elif self.window(k).kind == "avg":
            row = self.divided(k, at, row)
        used = sum(p.name.startswith(("with:", "by:")) for level in self.levels[:k] for p in level.chain)
        chain = self.levels[k].chain[: -1 if self.by_bits(k) else None]
        for i, stage in enumerate(chain):
            if stage.name.startswith(("with:", "by:")):
                row = self.with_outside(k, stage, OUTSIDE[used], at, row)
                used += 1
            else:
                row = [self.applied(k, i, stage, value) for value in row]
        if last:
            self.add(f"y_line = y_turn + ({a}) * y_row")
            for c, value in enumerate(row):
                self.add(f"y[u64(y_line + {self.steps[1] * c or f'{c} * y_col'})] = {value}")
            self.depth -= not self.free
            return row
        w = self.window(k + 1)
        row = self.masked(k, row, BEYOND[w.kind])
        if w.kind == "max":
            ranges = [row[c * w.col_step : c * w.col_step + w.cols] for c in range(self.counts[k + 1])]
            row = self.by_threes(ranges, relu=True) if self.by_bits(k) else self.largest(ranges)
        elif w.kind == "avg":
            starts = (c * w.col_step for c in range(self.counts[k + 1]))
            row = [self.total(row[s : s + w.cols]) for s in starts]
        if self.free:
            return row
        to = [self.name("h") for _ in row]
        for name, value in zip(to, row, strict=True):
            self.add(f"{name} = {value}")
        self.depth -= 1
        self.add("else:")
        for name in to:
            self.add(f"    {name} = {BEYOND[w.kind]}")
        return to

    # -- elements ----------------------------------------------------------------------------------

    def divided(self, k: int, at: str, row: list[str]) -> list[str]:
        """Return the sums of level k over their divisors."""
        w = self.window(k)
        made = [self.name("q") for _ in row]
        if w.last:
            share = self.name("share")
            self.names[share] = self.float32(1.0) / self.float32(w.last)
            for name, value in zip(made, row, strict=True):
                self.add(f"{name} = times({value}, {share})")
            return made
        top, rows = f"{at} * {w.row_step} - {w.top}", self.name("n")
        self.add(f"{rows} = min({top} + {w.rows}, height{k - 1}) - max({top}, i64(0))")
        for c, (name, value) in enumerate(zip(made, row, strict=True)):
            left = f"col{k - 1} + {c * w.col_step}"
            cols = f"(min({left} + {w.cols}, width{k - 1}) - max({left}, i64(0)))"
            self.add(f"{name} = times({value}, quotient(ONE, f({rows} * {cols})))")
        return made

    def applied(self, k: int, i: int, stage: Pointwise, value: str) -> str:
        """Return one element after one stage."""
        to = self.name("e")
        if stage.name == "affine":
            self.add(f"{to} = fma({value}, scale{k}_{i}, shift{k}_{i})")
        else:
            a, b, *_ = [*map(self.float32, stage.numbers), self.float32(0.0), self.float32(0.0)]
            prefix = f"{stage.name}{k}_{i}"
            self.names |= {prefix: self.functions[stage.name], f"{prefix}_a": a, f"{prefix}_b": b}
            self.add(f"{to} = {prefix}({value}, {prefix}_a, {prefix}_b)")
        return to

    def with_outside(self, k: int, stage: Pointwise, letter: str, at: str, row: list[str]) -> list[str]:
        """Return each element combined with that of an outside tensor at its place; beyond the edge, any."""
        kind, _, name = stage.name.partition(":")
        self.names[f"two_{name}"] = self.pairs[name]
        self.add(f"{letter}_line = {letter}_at + {at} * {letter}_row")
        found, made = [self.name("o") for _ in row], [self.name("e") for _ in row]
        for c, other in enumerate(found):
            self.add(f"{other} = {letter}[u64({letter}_line + i64({self.column(k, c)}) * {letter}_col)]")
        for to, value, other in zip(made, row, found, strict=True):
            pair = f"{value}, {other}" if kind == "with" else f"{other}, {value}"
            self.add(f"{to} = two_{name}({pair})")
        return made

    def masked(self, k: int, row: list[str], beyond: str) -> list[str]:
        """Return the row with the elements beyond the image's left and right edge replaced."""
        lo, hi = self.inside[k]
        made = []
        for c, value in enumerate(row):
            if self.free:
                made.append(value)
                continue
            tests = [f"from_left{k} >= i32({-c})"] * (c < lo) + [f"from_right{k} > i32({c})"] * (c > hi)
            to = self.name("m") if tests else value
            if tests:
                self.add(f"{to} = {value} if {' and '.join(tests)} else {beyond}")
            made.append(to)
        return made

    def by_bits(self, k: int) -> bool:
        """Return whether maxima of level k's values are taken as those of integers."""
        return bool(self.threes) and k < self.last and by_bits(self.levels[k], self.window(k + 1), k == 0)

    def total(self, values: Sequence[str]) -> str:
        """Return the sum of the values, from the left."""
        acc = values[0]
        for value in values[1:]:
            to = self.name("s")
            self.add(f"{to} = plus({acc}, {value})")
            acc = to
        return acc

    def by_threes(self, windows: Sequence[Sequence[str]], relu: bool = False) -> list[str]:
        """Return the largest of each window by bits, of zero, too, if ``relu``."""
        found = []
        for acc, *values in windows:
            for i, value in enumerate(values, 1):
                to = self.name("g")
                last = relu and i == len(values)
                self.add(f"{to} = {'larger_bits_relu' if last else 'larger_bits'}({acc}, {value})")
                acc = to
            found.append(acc)
        return found

    def largest(self, windows: Sequence[Sequence[str]]) -> list[str]:
        """Return the largest of each window of one line of values; shared parts are computed once."""
        line: list[str] = list(dict.fromkeys(v for window in windows for v in window))
        blocks, parts = shared_blocks([(line.index(w[0]), line.index(w[0]) + len(w)) for w in windows])
        known: dict[tuple[int, int], str] = {}
        for start, stop in blocks:
            middle = (start + stop) // 2
            known[start, stop] = to = self.name("b")
            left, right = (known.get(b, line[b[0]]) for b in ((start, middle), (middle, stop)))
            self.add(f"{to} = larger({left}, {right})")
        found = []
        for parts_of in parts:
            acc = known.get(parts_of[0], line[parts_of[0][0]])
            for part in parts_of[1:]:
                to = self.name("g")
                self.add(f"{to} = larger({acc}, {known.get(part, line[part[0]])})")
                acc = to
            found.append(acc)
        return found

    float32: Any
    functions: dict[str, Any]
    pairs: dict[str, Any]


def stack_source(
    stages: str,
    columns: int,
    turn: int,
    threads: int,
    steps: tuple[int, int],
    threes: int,
    names: dict[str, Any],
) -> tuple[str, dict[str, Any]]:
    """Return the text, and its globals besides those in ``names``, which has float32, functions, pairs."""
    s = _Source(stages, columns, turn, threads, steps, threes)
    s.float32, s.functions, s.pairs = names["float32"], names["functions"], names["pairs"]
    return s.whole(), s.names
