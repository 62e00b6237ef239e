"""A module called with certain arguments, as an exported graph of its tensors alone.

The export traces a shell of the module (`bslite.dropin.shell`).
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from bslite.dropin import casting, growing
from bslite.dropin.carried import Carried
from bslite.dropin.changed import apart, changes, places
from bslite.dropin.making import check_made, is_making
from bslite.dropin.noted import Place
from bslite.dropin.shell import shell_of
from bslite.dropin.structure import Counter, Returned, Structure
from bslite.dropin.traced import Traced, answers, fill_caches
from bslite.errors import BsliteError, UnsupportedError
from bslite.frontends.torch import fixing, strided
from bslite.frontends.torch.autocast import check_switches, has_autocast, write_casts
from bslite.frontends.torch.capture import failure, few_questions, functional, summary, trace
from bslite.frontends.torch.checks import check_module
from bslite.frontends.torch.graph import Graph, transforms, writes
from bslite.frontends.torch.memory import memory
from bslite.frontends.torch.sizes import Sizes, bind, plain_inputs, sizes_of
from bslite.frontends.torch.tracing.asking import Asking
from bslite.frontends.torch.tracing.faithful import check_faithful, written_parameters
from bslite.frontends.torch.tracing.following import Following, enquires
from bslite.frontends.torch.tracing.numbers import unsettled
from bslite.frontends.torch.tracing.reach import hidden_modules
from bslite.frontends.torch.values import NARROW

ONE = "a batch of one is traced for itself"
UNFREE = "it could not be left free in a trace before"
ORDER = "it takes elements by their places in memory, and an argument lies there in another order than before"
DECIDED = "values of an input decide sizes"
FEW = 16384  # the most numbers of a tensor whose values a trace may know
#: Modules whose hooks note a layer's output for the call's result.
NOTING = ("transformers.utils.output_capturing",)


@dataclass
class Capture:
    """``graph`` takes the tensors among the arguments, in order, and returns those among the results."""

    graph: Graph
    shell: torch.nn.Module
    results: Returned
    fixed: str  # why the batch is not free; empty if it is
    functional: bool  # no operation works in place
    growing: frozenset[Any] = frozenset()  # symbols of sizes that grow from call to call
    sizes: Sizes | None = None  # the free ones, if there may be more than the batch
    origin: "tuple[Capture, Mapping[Any, int]] | None" = None  # what it was settled from, and at which sizes
    written: "dict[bool, Capture]" = field(default_factory=dict)  # what `rewritten` has made
    rewrites: tuple[bool, ...] = ()  # the calls of `rewritten` that led here: what was ``decomposed``
    answers: tuple[bool | int, ...] = ()  # to what the forward asks; the last results are what it asks about
    decided: tuple[int, ...] = ()  # places of tensors of numbers for whose values alone the trace holds
    counters: tuple[Counter, ...] = ()  # that it takes behind the tensors among the arguments
    orders: list[list[int]] = field(default_factory=list)  # of axes in memory that it holds for
    changed: tuple[int, ...] = ()  # places of tensors it writes to; the first results are their values
    autocast: torch.dtype | None = None  # around the call; its casts are in the graph
    outside: Sequence[torch.Tensor] = ()  # the tensors that it takes for constants
    carried: Carried | None = None  # those that it would have taken for such

    def refusal(self, tensors: Sequence[torch.Tensor]) -> str:
        """Why the graph does not hold for ``tensors`` of this kind; empty if it does."""
        if self.orders and self.orders != list(map(strided.order, tensors)):
            return ORDER
        return growing.refusal(self.graph, tensors) if self.growing else ""

    def rewritten(self, decomposed: bool = False) -> "Capture":
        """The same without in-place operations; with ``decomposed`` also without those that have no builder,
        where torch can write them out in others.
        """
        if self.origin is not None:
            source, sizes = self.origin
            return source.rewritten(decomposed).settled(sizes)
        made = self.written.get(decomposed)
        if made is None:
            graph = Graph(functional(self.graph.program, decomposed))
            # An operation that says nothing of it (native_batch_norm) may turn out to write to an input.
            changed = places(graph, type(self.shell).__name__)
            made = replace(
                self, graph=graph, functional=True, written={}, rewrites=(*self.rewrites, decomposed),
                changed=changed,
            )  # fmt: skip
            self.written[decomposed] = made
        return made

    def as_far_as(self, other: "Capture") -> "Capture":
        """The same, rewritten as ``other``, of the same trace, is."""
        made = self
        for decomposed in other.rewrites[len(self.rewrites) :]:
            made = made.rewritten(decomposed)
        return made

    @property
    def open_shapes(self) -> tuple[tuple[int | str, ...], ...]:
        """The inputs of the trace that it was settled from, free sizes by name; empty if it was not."""
        sizes = self.sizes if self.origin is None else self.origin[0].sizes
        return () if sizes is None else tuple(map(sizes.named, sizes.inputs))

    @property
    def others(self) -> bool:
        """Whether it serves other sizes than those of its example, beside the batch."""
        return self.sizes is not None and not set(self.sizes.example) <= self.sizes.batch

    @property
    def asks_for_batch(self) -> bool:
        """Whether the trace holds for some batches only."""
        asked = {s for guard in (self.sizes.guards if self.sizes else ()) for s in guard.free_symbols}
        return self.sizes is not None and bool(asked & self.sizes.batch)

    def bound(self, tensors: Sequence[torch.Tensor]) -> Mapping[Any, int] | None:
        """The free sizes of ``tensors``, but for the batch; None if the trace does not hold for them."""
        if self.sizes is None:
            return None
        bound = bind(self.graph.program, self.sizes, tensors)
        if bound is None or self.asks_for_batch:
            return bound
        return {s: n for s, n in bound.items() if s not in self.sizes.batch}

    def settled(self, sizes: Mapping[Any, int]) -> "Capture":
        """The same with numbers for some free sizes."""
        graph = Graph(fixing.fixed(self.graph.program, sizes))
        fixed = self.fixed or ("the module asks for it" if self.asks_for_batch else "")
        return replace(self, graph=graph, fixed=fixed, sizes=None, origin=(self, sizes), written={})


@dataclass(frozen=True)
class Terms:
    """On which terms a trace is made.

    ``free_batch``: whether the batch is left free, where possible. ``grows``: the axis of each tensor that
    has to stay free because it grows from call to call. ``free``: the axes of each tensor that are to stay
    free if the module does not fix them. ``known``: the places of tensors whose values the trace may know; by
    default those of a few numbers that it cannot do without. ``noted``: attributes that calls set, which a
    forward is not to read first. ``before``: the graph of the trace that found more of them.
    ``answers``: what the forward is told when it asks for values. ``dtypes``: those of results in eager mode,
    if a trace has shown that autocast is on somewhere.
    """

    free_batch: bool = False
    grows: Sequence[int | None] = ()
    free: Sequence[Collection[int]] = ()
    known: Collection[int] | None = None
    noted: frozenset[Place] = frozenset()
    before: str = ""
    answers: Sequence[bool | int] | None = None
    dtypes: Sequence[torch.dtype] | None = None

    @property
    def again(self) -> bool:
        """Whether a trace has been made before."""
        return bool(self.before) or self.answers is not None or self.dtypes is not None

    def watching(self, more: frozenset[Place], program: torch.export.ExportedProgram) -> "Terms":
        """The same for another trace, after one has shown that the forward notes ``more``."""
        return replace(self, noted=self.noted | more, before=str(program.graph))


def capture(module: torch.nn.Module, arguments: Structure, name: str, terms: Terms = Terms()) -> Capture:
    """Trace ``module.forward`` on ``arguments``.

    Raises UnsupportedError if the forward cannot be traced or does more than compute results from its
    arguments, and another `BsliteError` if bslite does not run a module in this mode or with such parameters.
    """
    check_module(module, *NARROW)
    check_hooks(module)
    free_batch, free, known = terms.free_batch, terms.free, terms.known
    if not terms.again:
        fill_caches(module, arguments)
    asking = None if terms.answers is None else Asking(terms.answers)
    shell = shell_of(module, whole=bool(terms.noted))
    traced = Traced(shell, arguments, terms.noted, asking, terms.dtypes or ())
    tensors = apart([x.detach() for x in arguments.leaves])
    axes = [set(own) for own in free] or [set() for _ in tensors]
    for own, axis in zip(axes, terms.grows, strict=False):
        own |= set() if axis is None else {axis}
    program, shared, fixed = None, [False] * len(tensors), "" if free_batch else ONE
    following = None if known is None else Following({i: tensors[i] for i in known})
    if not free_batch and next((t.shape[0] for t in tensors if t.ndim), 1) > 1:
        fixed = UNFREE
    with few_questions() if free else nullcontext():
        if free_batch:
            try:
                repeated, shared, dynamic = _repeated(tensors, axes, len(arguments.counters))
                program = trace(traced.twin, repeated, dynamic)
            except Exception as e:
                shared, fixed = [False] * len(tensors), summary(e)
        if program is None:
            dynamic = (tuple(map(growing.left_free, axes)),) if any(axes) else None
            try:
                program = trace(traced.twin, tensors, dynamic, following=following)
            except Exception as e:
                if enquires(e) and (made := _of_values(module, arguments, name, terms, any(axes))):
                    return made
                raise failure(traced.twin, name, e) from e
    assert traced.results is not None
    traced.check_assigned(name)
    if written := written_parameters(program):
        raise UnsupportedError(f"model {name!r}: its forward changes {written[0]!r} in place")
    if more := traced.unwatched(name, bool(terms.before)):
        return capture(module, arguments, name, terms.watching(more, program))
    traced.check_notes(str(program.graph), terms.before, name, tensors)
    check_made(module, program.constants.values(), name)
    if free and unsettled(traced.twin, program):
        return capture(module, arguments, name, replace(terms, free=()))
    check_switches(program, name)
    if has_autocast(program):
        write_casts(program, name)
        dtypes = traced.dtypes_in_eager_mode(tensors) if terms.dtypes is None else []
        if dtypes and dtypes != traced.dtypes:
            return capture(module, arguments, name, replace(terms, dtypes=dtypes))
    graph = Graph(program)
    grown = growing.symbols(graph, terms.grows, len(arguments.counters))
    results, whole = traced.results, not _writing(graph)
    told = tuple(terms.answers or ())
    found = Capture(
        graph, traced.twin, results, fixed, functional=whole, growing=grown, answers=told,
        counters=arguments.counters, autocast=casting.noted(), outside=traced.outside(program),
    )  # fmt: skip
    if following and following.decided:
        found.fixed, found.decided = DECIDED, tuple(sorted(following.decided))
    if free and plain_inputs(program):
        found.sizes = sizes_of(program, tensors, [{}] * len(tensors), shared)
    changed = changes(graph, name)
    if any(transforms(n) for n in graph.nodes):
        found = found.rewritten()
    if not found.functional and (changed or graph.unknown() or graph.mutation_shows()):
        found = found.rewritten()
    found.changed = places(found.graph, name)
    found.orders = strided.orders(found.graph.nodes, tensors)
    strided.check(found.graph.nodes, name)
    check_faithful(name, program, traced.twin, tensors)
    return found


def _of_values(
    module: torch.nn.Module, arguments: Structure, name: str, terms: Terms, free: bool
) -> Capture | None:
    """A trace of a forward that asks for values; None if there is none. ``free``: whether sizes are."""
    made = None
    if terms.known is None and not free:
        made = capture_of_values(module, arguments, name, terms.noted)
    if made is not None or terms.answers is not None:
        return made
    if told := answers(module, arguments, [x.detach() for x in arguments.leaves]):
        with suppress(UnsupportedError):  # the trace without them says why
            return capture(module, arguments, name, replace(terms, answers=told))
    return None


def capture_of_values(
    module: torch.nn.Module, arguments: Structure, name: str, noted: frozenset[Place]
) -> Capture | None:
    """Trace for the values of those tensors of few numbers from which the forward computes sizes, and for
    this batch; None if that does not help. Raises as `capture`.
    """
    tensors = tuple(x.detach() for x in arguments.leaves)
    following = Following({i: t for i, t in enumerate(tensors) if has_few(t)})
    try:
        trace(Traced(shell_of(module), arguments).twin, tensors, None, following=following)
    except Exception:
        return None
    return capture(module, arguments, name, Terms(known=following.decided, noted=noted))


def has_few(tensor: torch.Tensor) -> bool:
    """Whether a trace may know the values of ``tensor``: a few whole numbers or truth values."""
    return (
        tensor.layout is torch.strided
        and tensor.dtype in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
        and tensor.numel() <= FEW
        and not (tensor.is_meta or tensor.is_neg())
    )


def shares_memory(captured: Capture) -> bool:
    """Whether a result lies in an input's memory, where bslite's own would not: a caller may write there."""
    graph = captured.graph
    given = {memory(n) for n in graph.nodes if n.op == "placeholder" and n not in graph.stored} - {None}
    results = torch.utils._pytree.tree_leaves(graph.nodes[-1].args[0])
    return any(memory(n) in given for n in results if isinstance(n, torch.fx.Node) and n.op != "placeholder")


def check_hooks(module: torch.nn.Module, backward: bool = False) -> None:
    """Raise UnsupportedError if layers inside the module have forward hooks, or ``backward`` ones."""
    inside = [(path, m) for path, m in module.named_modules() if path]
    inside += [(type(m).__name__, m) for m in hidden_modules(module)]
    if hooked := [path for path, m in inside if _hooks(m)]:
        raise UnsupportedError(f"forward hooks on layers inside the model ({', '.join(hooked[:5])})")
    if hooked := [path for path, m in inside if backward and (m._backward_hooks or m._backward_pre_hooks)]:
        raise UnsupportedError(f"backward hooks on layers inside the model ({', '.join(hooked[:5])})")


def _hooks(module: torch.nn.Module) -> list[Any]:
    """The forward hooks that may do more than note what the call returns, or make a weight."""
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    return [h for h in hooks if getattr(h, "__module__", "") not in NOTING and not is_making(h)]


def _repeated(
    tensors: tuple[torch.Tensor, ...], axes: Sequence[Collection[int]], counters: int
) -> tuple[tuple[torch.Tensor, ...], list[bool], Any]:
    """Inputs with a batch of at least four, which of them have it, and their ``dynamic_shapes``; see the
    frontend's `repeat_batch`. ``axes``: others to leave free. The last ``counters`` have no batch.
    """
    batch = next((x.shape[0] for x in tensors if x.ndim), 0)
    if not batch:
        raise BsliteError("no input has a batch")
    dim = torch.export.Dim("N", min=2)
    shared = [bool(x.ndim and x.shape[0] == batch) for x in tensors]
    shared[len(shared) - counters :] = [False] * counters
    dynamic = tuple(
        {**(growing.left_free(own) or {}), **({0: dim} if s else {})} or None
        for s, own in zip(shared, axes, strict=True)
    )
    if batch < 4:
        tensors = tuple(torch.cat([x] * 4) if s else x for x, s in zip(tensors, shared, strict=True))
    return tensors, shared, (dynamic,)


def _writing(graph: Graph) -> list[torch.fx.Node]:
    """The operations that work in place."""
    return [n for n in graph.nodes if writes(n)]
