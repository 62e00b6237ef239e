"""The sizes that an export left free: their names, the example's, and what the trace took for granted."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bslite.frontends.common.lazy import load_torch
from bslite.frontends.common.values import Dims
from bslite.frontends.torch.values import dims, substituted
from bslite.ops import Shape
from bslite.spec import Input

if TYPE_CHECKING:
    import torch

Symbol = Any  # a sympy.Symbol
#: Sizes tried where the trace may not hold. Sizes of one are traced as larger ones are.
PROBES = (*range(2, 10), 12, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 100, 128, 129, 224, 256, 512)


@dataclass(frozen=True)
class Sizes:
    """``example``: symbol -> size, in the order of the inputs. ``names``: what a user calls it.

    ``guards``: conditions on the symbols (sympy) under which the traced graph is what the module computes.
    ``batch``: the symbols of the batch. ``inputs``: the traced shapes of the inputs.
    """

    example: Mapping[Symbol, int]
    names: Mapping[Symbol, str]
    guards: tuple[Any, ...]
    batch: frozenset[Symbol]
    inputs: tuple[Dims, ...] = ()

    def hold(self, sizes: Mapping[Symbol, int]) -> bool:
        """Whether the trace holds for these sizes; a symbol that is not among them has the example's."""
        values = {**self.example, **sizes}
        try:
            return all(bool(substituted(g, values)) for g in self.guards)
        except ArithmeticError:  # a remainder by a size that is zero
            return False

    def without(self, fixed: Mapping[Symbol, int]) -> "Sizes":
        """What is left to know if some sizes are fixed."""
        guards = tuple(g for g in (substituted(g, fixed) for g in self.guards) if g.free_symbols)
        left = {s: n for s, n in self.example.items() if s not in fixed}
        return Sizes(left, self.names, guards, self.batch - set(fixed), self.inputs)

    def named(self, traced: Dims) -> tuple[int | str, ...]:
        """A traced shape with the names of free sizes."""
        return tuple(d if isinstance(d, int) else self.names.get(d, str(d)) for d in traced)

    def doubtful(self) -> Iterator[dict[Symbol, int]]:
        """Sizes for which the trace does not hold, one of them other than the example's."""
        for symbol, n in self.example.items():
            bounds = {int(b) + d for g in self.guards for b in _numbers(g) for d in (-1, 0, 1)}
            for size in sorted({*PROBES, *bounds, n - 1, n + 1, 2 * n}):
                made = self._alike({**self.example, symbol: size}, symbol)
                if 2 <= size < 2**20 and not self.hold(made):
                    yield made

    def probes(self) -> Iterator[dict[Symbol, int]]:
        """The example's sizes, and some others for which the trace holds."""
        yield dict(self.example)
        for shift in (1, 2):
            made = {s: n + shift + i for i, (s, n) in enumerate(self.example.items())}
            for symbol in self.example:
                made = self._alike(made, symbol)
            if self.hold(made):
                yield made
        for symbol, n in self.example.items():
            for size in (n + 1, 2 * n, n + 8, n + 32):
                made = self._alike({**self.example, symbol: size}, symbol)
                if self.hold(made):
                    yield made
                    break

    def _alike(self, sizes: dict[Symbol, int], symbol: Symbol) -> dict[Symbol, int]:
        """The sizes with that of ``symbol`` for all of its name, which inputs demand to be alike."""
        name = self.names[symbol]
        return {s: sizes[symbol] if self.names[s] == name else n for s, n in sizes.items()}


def _numbers(guard: Any) -> set[Any]:
    return {n for n in guard.atoms() if n.is_Integer}


def sizes_of(
    program: "torch.export.ExportedProgram",
    example: Sequence["torch.Tensor"],
    named: Sequence[Mapping[int, str]],
    batched: Sequence[bool],
) -> Sizes:
    """The free sizes of an export. ``example``: the tensors among the user's inputs, in order; ``named``: for
    each of them, axis -> name; ``batched``: whether its axis 0 is the batch.
    """
    given = tensor_inputs(program)
    sizes: dict[Symbol, int] = {}
    names: dict[Symbol, str] = {}
    batch: set[Symbol] = set()
    environment = None
    for node, tensor, own, first in zip(given, example, named, batched, strict=True):
        rank = tensor.ndim
        for axis, (traced, size) in enumerate(zip(node.meta["val"].shape, tensor.shape, strict=True)):
            if isinstance(traced, int):
                continue
            environment = traced.node.shape_env
            expression = traced.node.expr
            if not expression.is_Symbol:
                continue
            sizes.setdefault(expression, int(size))
            if first and axis == 0:
                batch.add(expression)
            name = own.get(axis) or ("N" if first and axis == 0 else _usual_name(rank, axis))
            if expression not in names:
                taken = set(names.values())
                count, unique = 1, name
                while unique in taken and not own.get(axis) and not (name == "N" and expression in batch):
                    count += 1
                    unique = f"{name}{count}"
                names[expression] = unique
    shapes = tuple(dims(n.meta["val"]) for n in given)
    return Sizes(sizes, names, _guards(environment, sizes), frozenset(batch), shapes)


def _usual_name(rank: int, axis: int) -> str:
    if rank in (4, 5) and axis >= 2:
        return "HW"[axis - 2] if rank == 4 else "DHW"[axis - 2]
    return "L" if axis else "N"


def _guards(environment: Any, sizes: Mapping[Symbol, int]) -> tuple[Any, ...]:
    """The conditions on these symbols that the module's code asked for."""
    if environment is None:
        return ()
    found = [g.expr for g in environment.guards if asked_by_module(g)]
    found = [environment.simplify(g) if hasattr(environment, "simplify") else g for g in found]
    kept = [g for g in found if g.free_symbols and g.free_symbols <= set(sizes) and not _asks_for_one(g)]
    return tuple(dict.fromkeys(kept))


def _asks_for_one(guard: Any) -> bool:
    """Whether a guard says that something is not 1: torch asks so of strides, and ones are traced as more."""
    import sympy

    if isinstance(guard, sympy.Ne):
        return 1 in guard.args
    return (isinstance(guard, sympy.Ge) and guard.rhs == 2) or (
        isinstance(guard, sympy.Gt) and guard.rhs == 1
    )


def asked_by_module(guard: Any) -> bool:
    """Whether a guard is the answer to a question of the module's code, of torch.nn's layers among it.

    torch's own stand-ins for operations ask, too: whether memory is contiguous, which library to call,
    whether sizes fit. The graph's operations are checked again for each size that they are built for.
    """
    place = guard.sloc.framework_loc
    if place is None or isinstance(place, str):
        return True
    parts = Path(place.filename).parts
    root = Path(load_torch().__file__).parent.parts
    return parts[: len(root)] != root or not (parts[len(root)].startswith("_") or parts[len(root)] == "fx")


def claims(program: Any) -> Sequence[Any]:
    """The equations (sympy) that an exported program, or one `fixed`, asserts of sizes that values decide, as
    of the pieces of a split.
    """
    import sympy

    torch = load_torch()
    if not isinstance(program, torch.export.ExportedProgram):
        return program.claims
    check = torch.ops.aten._assert_scalar.default
    asserted = (n.args[0] for n in program.graph.nodes if n.target is check)
    told = [n.meta["val"].node.expr for n in asserted if isinstance(n, torch.fx.Node) and "val" in n.meta]
    return [e for e in told if isinstance(e, sympy.Eq)]


def numbers(
    claimed: Sequence[Any], most: int, given: Mapping[Symbol, int] | None = None
) -> Mapping[Symbol, int] | None:
    """A size for every symbol: the ``given`` ones, ``most`` or less for others, but for one in each equation
    of `claims` what that leaves. None where no such sizes are found.
    """
    for other in range(most, 0, -1):
        found = sized(other, given)
        for equation in claimed:
            if asked := sorted(equation.free_symbols - set(found), key=str):
                known = {s: found[s] for s in equation.free_symbols - {asked[-1]}}
                found.update(_solved(substituted(equation, known), asked[-1]))
        if all(bool(substituted(e, {s: found[s] for s in e.free_symbols})) for e in claimed):
            return found
    return None


def _solved(equation: Any, symbol: Symbol) -> dict[Symbol, int]:
    """The size that a linear equation leaves for its only symbol; none if that is no size."""
    import sympy

    if not isinstance(equation, sympy.Eq):  # it holds, or does not, whatever the size
        return {}
    off = sympy.expand(equation.lhs - equation.rhs)
    factor = off.coeff(symbol)
    rest = off - factor * symbol
    if rest.free_symbols or factor == 0:
        return {}
    size = -rest / factor
    return {symbol: int(size)} if size.is_Integer and size > 0 else {}


def sized(most: int, given: Mapping[Symbol, int] | None = None) -> defaultdict[Symbol, int]:
    """A size for every symbol: ``most``, but for the ``given`` ones."""
    return defaultdict(lambda: most, given or {})


def tensor_inputs(program: "torch.export.ExportedProgram") -> "list[torch.fx.Node]":
    """The placeholders of the user's tensors, in order."""
    torch = load_torch()
    kinds = {s.arg.name: s.kind.name for s in program.graph_signature.input_specs}
    return [
        n
        for n in program.graph.nodes
        if n.op == "placeholder"
        and kinds[n.name] == "USER_INPUT"
        and isinstance(n.meta.get("val"), torch.Tensor)
    ]


def bind(program: Any, sizes: Sizes, tensors: "Sequence[torch.Tensor]") -> dict[Symbol, int] | None:
    """The free sizes of an export in a call with ``tensors``; None if it does not serve that call."""
    bound: dict[Symbol, int] = {}
    for node, tensor in zip(tensor_inputs(program), tensors, strict=True):
        for traced, size in zip(dims(node.meta["val"]), tensor.shape, strict=True):
            if isinstance(traced, int):
                if traced != size:
                    return None
            elif size < 2 or bound.setdefault(traced, size) != size:
                return None
    return bound if sizes.hold(bound) else None


def bound_to(sizes: Sizes, inputs: Sequence[Input], shapes: Sequence[Shape]) -> dict[Symbol, int]:
    """The free sizes for inputs of these shapes. InputError, naming input and axis, if they do not fit."""
    bound: dict[Symbol, int] = {}
    for declared, traced, shape in zip(inputs, sizes.inputs, shapes, strict=True):
        Input(declared.name, sizes.named(traced), declared.example).bind(
            shape, {sizes.names[s]: n for s, n in bound.items()}
        )
        bound.update((t, n) for t, n in zip(traced, shape, strict=True) if t in sizes.example)
    return bound


def plain_inputs(program: "torch.export.ExportedProgram") -> bool:
    """Whether every size of an input is a number or a symbol of its own, none computed from others."""
    return all(isinstance(d, int) or d.is_Symbol for n in tensor_inputs(program) for d in dims(n.meta["val"]))
