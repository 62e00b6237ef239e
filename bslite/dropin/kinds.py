"""The specialisations of a module: the blueprint that serves a kind of call, made when it is met."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from bslite.cache import Recent, by_operations
from bslite.dropin import growing, place, reasons
from bslite.dropin.blueprint import Blueprint, draw
from bslite.dropin.capture import Terms, capture, capture_of_values, has_few, shares_memory
from bslite.dropin.families import Family
from bslite.dropin.model import Model
from bslite.dropin.noted import ChangesState, Noted, untouched
from bslite.dropin.options import Options, Voice
from bslite.dropin.signature import Key, kind
from bslite.dropin.structure import Counter, Structure, counted, numbers
from bslite.dropin.tune import tune
from bslite.errors import BsliteError, UnsupportedError
from bslite.frontends.torch.capture import summary
from bslite.frontends.torch.checks import tensors as named_tensors
from bslite.frontends.torch.tracing.following import enquires, sizes_of_values

Tensor = torch.Tensor
MAX_FAMILIES = 16  # kinds of calls that differ in sizes alone: beyond, the least recently used is dropped
MAX_SEEN = 256
MAX_CALLS = 512  # shapes and strides known, over all specialisations
MUCH = 0.05  # share of the flops that torch runs, for which a trace that holds for values is worth while
MAX_TRACES = 6  # of calls that differ only in numbers that an object holds, or in values that decide sizes


@dataclass(frozen=True)
class InTorch:
    """A call that torch runs. ``loud``: a warning says so. ``fault``: because bslite failed. ``passing``: the
    next call like it may be another's. ``inner``: layers inside may run in bslite, see `Inside`.
    ``refused``: a trace was tried.
    """

    reason: str
    loud: bool = True
    fault: bool = False
    passing: bool = False
    inner: bool = False
    refused: bool = False


@dataclass
class Kind:
    """One specialisation: the blueprint of a kind of call, or why there is none; the shapes it served."""

    blueprint: Blueprint | InTorch
    shapes: dict[tuple[tuple[int, ...], ...], int] = field(default_factory=dict)

    def note(self, tensors: Sequence[Tensor]) -> None:
        """It serves calls with these tensors."""
        if len(self.shapes) < MAX_CALLS:
            self.shapes.setdefault(tuple(tuple(t.shape) for t in tensors), 0)

    def operations(self) -> int:
        """Those of its trace."""
        return 0 if isinstance(self.blueprint, InTorch) else len(self.blueprint.capture.graph.nodes)


class Kinds:
    """The specialisations of ``module``. ``left``: why torch is to run all new kinds; none if empty.

    ``tuned``: the models that measured the blueprint that is to be run next.
    """

    def __init__(
        self, module: torch.nn.Module, name: str, options: Options, voice: Voice,
        noted: Noted, forgotten: Callable[[Key], None],
    ) -> None:  # fmt: skip
        """``noted``: attributes that calls set. ``forgotten`` is told the key of each specialisation that is
        dropped.
        """
        self.module, self.name, self.options = module, name, options
        self.made: Recent[Key, Kind] = by_operations(Kind.operations, lambda key, _: forgotten(key))
        self.left = ""
        self.noted = noted
        self.tuned: list[Model] = []
        self._voice = voice
        self._traces: dict[Key, int] = {}  # kinds of call, numbers in objects left out -> times traced
        self._unfree: set[Key] = set()  # kinds of call whose batch cannot be left free
        self._refused: dict[Key, tuple[int, InTorch | None]] = {}  # such kinds -> how many had no trace, why
        self._families: Recent[Key, Family] = Recent(MAX_FAMILIES)  # kinds of call, sizes left out
        self._seen: Recent[Key, bool] = Recent(MAX_SEEN)  # kinds of call with values that had no trace yet
        self._numbers: dict[Key, tuple[dict[Counter, int], frozenset[Counter]]] = {}  # by objects; which vary
        self._fixed: set[Key] = set()  # kinds of call, whose trace holds for one number alone
        self._changed = False  # whether the last trace failed over a change of state, as a first call's may
        self._decided: dict[Key, set[int]] = {}  # names of arguments -> places of tensors whose values matter

    def restart(self) -> None:
        """Drop what was traced, after a change of the module."""
        self.made.clear()
        self._unfree.clear()
        self._families.clear()
        self._refused.clear()
        self._numbers.clear()
        self._fixed.clear()
        self._decided.clear()

    def values(self, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: Sequence[Tensor]) -> Key:
        """The values in a call that traces of such calls hold for; most modules have none."""
        if not self._decided:
            return ()
        places = self._decided.get((len(args), *kwargs), ())
        few = [i for i in sorted(places) if i < len(tensors) and has_few(tensors[i])]
        return tuple((i, tensors[i].cpu().contiguous().numpy().tobytes()) for i in few)

    def forget(self) -> None:
        """Drop everything."""
        self.restart()
        self._traces.clear()
        self.tuned, self.left, self._changed = [], "", False

    def constants(self) -> list[Tensor]:
        """The tensors that traces hold and the module does not."""
        found = (k.blueprint.constants() for k in self.made.values() if isinstance(k.blueprint, Blueprint))
        return [tensor for own in found for tensor in own]

    def find(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: Sequence[Tensor], objects: Sequence[Any]
    ) -> tuple[Key, Kind]:
        """The specialisation for this kind of call, made if there is none yet."""
        grows: Sequence[int | None] = ()
        kept = growing.kept((args, kwargs))
        counters: tuple[Counter, ...] = ()
        if objects or kept:
            counters = self._counters(args, kwargs, objects)
            inside = Structure((args, kwargs), _is_tensor, empty=True).inside
            held = [own or id(t) in kept for own, t in zip(inside, tensors, strict=True)]
            lengths = [t.shape[0] for t in counted(objects, counters)]
            grows = [*growing.axes(tensors, held, lengths), *(0 for _ in counters)]
            if growing.too_short(tensors, grows):
                return (), Kind(InTorch(growing.ONE, loud=False))
        values = self.values(args, kwargs, tensors)
        free = kind(args, kwargs, True, grows, counters=counters)
        found = kind(args, kwargs, False, grows, counters=counters) if free in self._unfree else free
        if (known := self.made.find((found, values))) is not None:
            return (found, values), known
        if values and self.options.fallback != "error" and self._seldom((found, values)):
            return (), Kind(InTorch(reasons.VALUES, loud=False, passing=True))
        if objects or values:
            loose = (kind(args, kwargs, True, grows, loose=True, sizes=not values), bool(values))
            self._traces[loose] = self._traces.get(loose, 0) + 1
            if self._traces[loose] > MAX_TRACES:
                if self.options.fallback == "error":
                    raise UnsupportedError(reasons.DECIDED if values else growing.OTHERS)
                return (), Kind(InTorch(reasons.DECIDED if values else growing.OTHERS, inner=not objects))
        alike = kind(args, kwargs, True, grows, sizes=False)
        met, why = self._refused.get(alike, (0, None))
        blueprint: Blueprint | InTorch
        if why is not None and (met + 1) & met:  # tried with the 1st, 2nd, 4th, 8th of them, and so on
            blueprint = why
        else:
            arguments = Structure((args, kwargs), _is_tensor, empty=True, counters=counters)
            blueprint = self._draw(arguments, args, kwargs, found is free, grows, [i for i, _ in values])
        if isinstance(blueprint, InTorch) and blueprint.passing:
            return (), Kind(blueprint)
        if isinstance(blueprint, InTorch) and blueprint.refused and counters:
            self._fixed.add(_counting(args, kwargs))
            return self.find(args, kwargs, tensors, objects)
        if isinstance(blueprint, InTorch):
            if objects or kept:  # a cache goes through all layers, at every token
                blueprint = replace(blueprint, inner=False)
            self._refused[alike] = met + 1, blueprint if blueprint.refused else None
        else:
            if found is free and blueprint.capture.fixed and _batched(tensors):
                self._unfree.add(free)
                found = kind(args, kwargs, False, grows, counters=counters)
            if self.noted.add(blueprint.capture.results.noted):  # which traces before may read
                self._families.clear()
                self.made.drop_all()
            if blueprint.capture.decided:
                self._decided.setdefault((len(args), *kwargs), set()).update(blueprint.capture.decided)
        found = (found, self.values(args, kwargs, tensors))
        return found, self.made.put(found, Kind(blueprint))

    def _counters(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], objects: Sequence[Any]
    ) -> tuple[Counter, ...]:
        """The numbers in objects that are others from call to call with such objects, as far as earlier ones
        show (a prompt, too), if none is one or less, which a trace takes for fixed.
        """
        if _counting(args, kwargs) in self._fixed:
            return ()
        alike, now = (len(args), *kwargs, *map(type, objects)), numbers(objects)
        before, found = self._numbers.get(alike, (now, frozenset()))
        found |= {c for c, n in now.items() if before.get(c, n) != n}
        self._numbers[alike] = now, found
        return tuple(sorted(c for c in found if c in now)) if all(now.get(c, 2) > 1 for c in found) else ()

    def _seldom(self, found: Key) -> bool:
        """Whether this is the first call with these values; they get a trace at the second."""
        before = self._seen.find(found)
        self._seen.put(found, True)
        return before is None

    def _draw(
        self, arguments: Structure, args: tuple[Any, ...], kwargs: dict[str, Any], free: bool,
        grows: Sequence[int | None], decided: Sequence[int],
    ) -> Blueprint | InTorch:  # fmt: skip
        """Export and survey, choose and measure. Raises UnsupportedError if the user allows no fallback."""
        if self.left:
            return InTorch(self.left, inner=True)
        tensors = arguments.leaves
        try:
            with untouched(self.module):
                batched = free and _batched(tensors)
                blueprint = self._blueprint(arguments, args, kwargs, batched, grows, decided)
            if self.options.inner and shares_memory(blueprint.capture):
                return InTorch(reasons.SHARES)
        except UnsupportedError as e:
            if self.options.fallback == "error":
                raise
            first = isinstance(e, ChangesState) and not self._changed
            self._changed |= first
            return InTorch(str(e), loud=not first, inner=not first, refused=True, passing=first)
        except BsliteError as e:
            return InTorch(str(e))
        except Exception as e:
            if enquires(e) and self.options.fallback != "error":
                return InTorch(reasons.ENQUIRES.format(error=summary(e)), inner=True, refused=True)
            return fault(e, self.options)
        self._changed = False
        self.choose(blueprint, tensors)
        return blueprint

    def choose(self, blueprint: Blueprint, tensors: Sequence[Tensor]) -> None:
        """Say what bslite lacks, choose by measuring what it runs, unless that is known. Raises
        UnsupportedError if it lacks something and the user allows no fallback.
        """
        if blueprint.lacking:
            text = reasons.unsupported(self.name, blueprint.lacking, blueprint.torch_share)
            if self.options.fallback == "error":
                raise UnsupportedError(text)
            self._voice.say(text, "\n".join(map(str, reasons.grouped(blueprint.lacking))))
        if self.options.tune and any(p.seconds is None for p in blueprint.parts):
            self.tuned = tune(
                blueprint, dict(named_tensors(self.module)), tensors, self.options.threads, self.options.inner
            )
        if blueprint.in_bslite:
            blueprint.assemble()

    def _blueprint(
        self, arguments: Structure, args: tuple[Any, ...], kwargs: dict[str, Any], free_batch: bool,
        grows: Sequence[int | None], decided: Sequence[int],
    ) -> Blueprint:  # fmt: skip
        """What serves a call: of a trace that is there, if calls before differ from it in sizes alone.

        ``decided``: the places of tensors whose values the trace may know.
        """
        supported, made, noted = place.ops_of(arguments.leaves), None, self.noted.places
        grown = any(axis is not None for axis in grows)
        if decided:
            made = draw(
                capture(self.module, arguments, self.name, Terms(known=decided, noted=noted)),
                self.name,
                supported,
            )
        elif not grown:
            key = kind(args, kwargs, free_batch, sizes=False)
            family = self._families.find(key)
            if family is None:
                self._families.put(key, Family.of(arguments.leaves))
            else:
                made = family.blueprint(self.module, arguments, self.name, free_batch, supported, noted)
        if made is None:
            captured = capture(self.module, arguments, self.name, Terms(free_batch, grows, noted=noted))
            try:
                made = draw(captured, self.name, supported)
            except Exception as e:  # a builder asks for a size that values say
                known = self._of_values(arguments, supported) if enquires(e) and not grown else None
                if known is None:
                    raise
                return known
        fixed = not decided and not grown
        if fixed and made.torch_share > MUCH and sizes_of_values(made.capture.graph.program):
            with suppress(BsliteError):
                known = self._of_values(arguments, supported)
                if known is not None and len(known.lacking) < len(made.lacking):
                    return known
        if free_batch and any(r.varies for r in made.refused):  # it may know the batch as a number only
            with suppress(BsliteError):
                other = self._blueprint(arguments, args, kwargs, False, grows, decided)
                return other if len(other.lacking) < len(made.lacking) else made
        return made

    def _of_values(self, arguments: Structure, supported: frozenset[str] | None) -> Blueprint | None:
        """What serves a call with these values of tensors of few numbers; None if that does not help."""
        known = capture_of_values(self.module, arguments, self.name, self.noted.places)
        return None if known is None else draw(known, self.name, supported)


def _counting(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Key:
    """What calls have in common that differ in sizes and numbers in objects alone."""
    return kind(args, kwargs, True, loose=True, sizes=False)


def fault(error: Exception, options: Options) -> InTorch:
    """What nobody foresaw while a call was prepared: the program goes on, or the error is raised."""
    if options.fallback == "error":
        raise error
    text = reasons.FAULT.format(error=f"{type(error).__name__}: {error}".splitlines()[0])
    return InTorch(text, fault=True, inner=True)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def _batched(tensors: Sequence[Tensor]) -> bool:
    """Whether the batch can be left free: an export takes a size of one for fixed."""
    return next((t.shape[0] for t in tensors if t.ndim), 1) > 1
