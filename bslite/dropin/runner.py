"""The call of a wrapped module: find or make the specialisation for the call, or run torch."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from bslite.arithmetic import current, precision
from bslite.dropin import casting, place, reasons
from bslite.dropin.assumption import Departed
from bslite.dropin.blueprint import Blueprint, Executable
from bslite.dropin.inside import Inside
from bslite.dropin.kinds import InTorch, Kind, Kinds, fault
from bslite.dropin.making import make_weights
from bslite.dropin.model import serves
from bslite.dropin.noted import Noted
from bslite.dropin.options import Options, Voice
from bslite.dropin.shell import reachable_tensors
from bslite.dropin.signature import Key, Unsignable, signature
from bslite.dropin.state import Run, State
from bslite.dropin.structure import counted
from bslite.dropin.watch import Watch
from bslite.engines.common.pause import no_collection
from bslite.errors import BsliteError, InputError, SpecError, UnsupportedError
from bslite.frontends.torch.checks import in_training
from bslite.spec import ModelSpec

Tensor = torch.Tensor
SLOT = "_bslite_runner"  # the attribute of a wrapped module that holds its runner
CALLS = 4  # that torch runs, and for each that bslite does, before a layer is let alone
MAX_RESTARTS = 3  # in a row, after changes to the module, before it is left to torch
NOTHING = InTorch("nothing of it runs in bslite, see bslite.report", loud=False)


class Runner:
    """Calls ``module``'s forward, faster. Safe to use from several threads at once."""

    def __init__(self, module: torch.nn.Module, options: Options, name: str = "", least: int = 0) -> None:
        """``name``: what warnings call the module, its class by default. ``least`` as for `Inside`."""
        self.module, self.options = module, options
        self.inside = Inside(module, self._layer, least)
        self.name = name or type(module).__name__
        self._voice = Voice(options.fallback)
        self.noted = Noted()
        self.kinds = Kinds(module, self.name, options, self._voice, self.noted, self._forgotten)
        self.in_torch: dict[str, int] = {}  # why calls ran in torch -> how many
        self._lately = [0, 0]  # calls that torch ran, and bslite, since `again`
        self.rebuilt = 0  # times the weights were packed anew
        self._state: State | None = None
        self._lock = threading.RLock()
        self._restarts = self._waited = 0
        self.trainer: Any = None  # made by the first call that trains

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.options.precision is not current():
            with precision(self.options.precision):
                return self(args, kwargs)
        if (cast := casting.around()) is not None:
            with casting.aside(cast):
                return self(args, kwargs)
        trains = (torch.is_grad_enabled() or bool(self.options.training)) and self._trains(args, kwargs)
        if self.module.__dict__["training"] and not trains and any(map(in_training, self.module.modules())):
            return self._run_torch(InTorch(reasons.TRAINING), args, kwargs)
        if around := reasons.outside() or (reasons.CASTS if trains and casting.noted() else ""):
            return self._run_torch(InTorch(around), args, kwargs)
        try:
            key, tensors, objects = signature(args, kwargs)
        except Unsignable as e:
            return self._run_torch(InTorch(str(e), inner=not trains), args, kwargs)
        if trains:
            return self._train(key, tensors, objects, args, kwargs)
        if self.kinds.left and not self._look_again():
            return self._run_torch(InTorch(self.kinds.left, inner=True), args, kwargs)
        try:
            state = self._current()
        except UnsupportedError as e:
            if self.options.fallback == "error":
                raise
            return self._run_torch(InTorch(str(e), inner=True), args, kwargs)
        if torch.is_grad_enabled() and (any(t.requires_grad for t in tensors) or state.watch.requires_grad()):
            return self._run_torch(InTorch(reasons.GRADIENTS), args, kwargs)
        key = (key, self.kinds.values(args, kwargs, tensors))
        run = state.calls.find(key)
        if run is None and place.capturing(tensors):
            return self._run_torch(InTorch(reasons.CAPTURED), args, kwargs)
        if run is None:
            with no_collection:  # in the first run as well, which may plan and pack weights
                try:
                    run = self._prepare(state, key, tensors, objects, args, kwargs)
                except BsliteError as e:
                    if not isinstance(e, SpecError):
                        raise
                    run = state.calls.put(key, fault(e, self.options))  # the user described no model
                except Exception as e:
                    run = state.calls.put(key, fault(e, self.options))
                # Now it is known what the trace takes for a constant.
                if torch.is_grad_enabled() and self._current().watch.requires_grad():
                    return self._run_torch(InTorch(reasons.GRADIENTS), args, kwargs)
                if not isinstance(run, InTorch):
                    return self._run(run, tensors, objects, args, kwargs)
        else:
            state.used = True
        return self._run(run, tensors, objects, args, kwargs)

    def _trains(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether the call is a step of training: layers are in that mode and gradients are wanted, or, if
        asked for, one of the two.
        """
        if self.options.training is False:
            return False
        wanted = torch.is_grad_enabled() and (
            any(isinstance(x, Tensor) and x.requires_grad for x in (*args, *kwargs.values()))
            or any(p.requires_grad for p in self.module.parameters())  # of which there may be hundreds
        )
        if not (wanted or self.options.training):
            return False
        return bool(wanted and self.options.training) or any(m.training for m in self.module.modules())

    def _train(
        self, key: Key, tensors: Sequence[Tensor], objects: Sequence[Any],
        args: tuple[Any, ...], kwargs: dict[str, Any],
    ) -> Any:  # fmt: skip
        """The call in training; see `Trainer`."""
        from bslite.dropin.training.trainer import Left, Trainer

        why = next(
            filter(None, map(reasons.of_tensor, tensors)), "" if tensors else "no argument is a tensor"
        )
        if any(t.device.type != "cpu" for t in (*tensors, *self.module.parameters())):
            why = why or "bslite trains on the CPU"
        if objects:
            why = why or "in training, no argument may be an object that holds tensors"
        if torch.nn.modules.module._has_any_global_hook():
            why = why or "in training, hooks on all modules are torch's"
        if why:
            return self._run_torch(InTorch(why), args, kwargs)
        with self._lock, no_collection:
            self.trainer = self.trainer or Trainer(self.module, self.name, self.options, self.noted)
            try:
                found = self.trainer.find(key, tensors, args, kwargs)
            except Exception as e:
                return self._run_torch(fault(e, self.options), args, kwargs)
        if isinstance(found, Left):
            if found.refused and self.options.fallback == "error":
                raise UnsupportedError(found.reason)
            why, loud = f"in training, {found.reason}", found.reason != reasons.SLOWER
            inner = found.inner and self.options.memory is None  # which would be each layer's
            return self._run_torch(InTorch(why, loud, inner=inner), args, kwargs)
        self._lately[1] += 1
        return found.run(tensors, objects, lambda error: self._instead(error, args, kwargs))

    def idle(self) -> bool:
        """Whether torch runs most calls, with nothing of bslite's inside."""
        theirs, ours = self._lately
        return theirs >= CALLS and theirs > CALLS * ours and not self.inside.layers()

    def again(self) -> None:
        """Count such calls anew."""
        self._lately = [0, 0]

    def _layer(self, layer: torch.nn.Module, least: int) -> "Runner | None":
        """What runs a layer of a module that does not run as a whole; None: torch does."""
        if hasattr(type(layer), SLOT) or isinstance(layer, torch.jit.ScriptModule):
            return None
        return Runner(layer, replace(self.options, fallback="silent", inner=True), least=least)

    def _run(
        self, run: Run | InTorch, tensors: Sequence[Tensor], objects: Sequence[Any],
        args: tuple[Any, ...], kwargs: dict[str, Any],
    ) -> Any:  # fmt: skip
        if isinstance(run, InTorch):
            return self._run_torch(run, args, kwargs)
        try:
            made = run(tensors, objects)
            self._lately[1] += 1
            return made
        except BsliteError as e:
            return self._instead(e, args, kwargs)

    def _instead(self, error: BsliteError, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call in torch, after an error such as an index out of range, for which torch raises its own."""
        often = isinstance(error, Departed) and error.often
        if isinstance(error, Departed) and self.options.fallback == "error":
            raise UnsupportedError(f"model {self.name!r}: {error}") from error
        return self._run_torch(InTorch(str(error), inner=often and self.options.memory is None), args, kwargs)

    def forget(self) -> None:
        """Drop all specialisations."""
        with self._lock:
            self._state, self._restarts, self._waited = None, 0, 0
            self.trainer = None
            self.kinds.forget()
            self.inside.forget()

    def specs(self) -> list[ModelSpec]:
        """The models that run in bslite."""
        with self._lock:
            made = [] if self._state is None else list(self._state.executables.values())
            return [m.spec for e in made for m in e.models]

    def _run_torch(self, why: InTorch, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        stands = self.inside.stands() if why.inner else []

        def forward() -> Any:
            with casting.again():
                return (
                    self.inside.call(stands, args, kwargs) if stands else self.module.forward(*args, **kwargs)
                )

        if why.fault:
            made = forward()  # what torch refuses as well is no fault of bslite's
            self._say(why, bool(stands))
            return made
        self._say(why, bool(stands))
        return forward()

    def _say(self, why: InTorch, inside: bool) -> None:
        self.in_torch[why.reason] = self.in_torch.get(why.reason, 0) + 1
        self._lately[0] += 1
        if why.loud:
            layers = " but for its large layers, which bslite tries one by one" if inside else ""
            self._voice.say(f"model {self.name!r} runs in torch{layers}: {why.reason}")

    def _current(self) -> State:
        """The state for the present weights."""
        state = self._state
        if state is not None and not state.watch.changed():
            return state
        with self._lock, no_collection:
            state = self._state
            if state is not None and not state.watch.changed():
                return state
            restart = state is None or state.watch.structure_changed()
            watch = self._watch(None if restart or state is None else state.watch)
            if restart or (state is not None and state.watch.forms != watch.forms):
                self._restarts = 0 if state is None or state.used else self._restarts + 1
                self.kinds.left = reasons.CHANGES if self._restarts > MAX_RESTARTS else ""
                self.kinds.restart()
            self.rebuilt += state is not None
            self._state = State(watch)
            for make in make_weights(self.module):
                make()
            return self._state

    def _look_again(self) -> bool:
        """Whether to look for changes of a module that is torch's because of them: ever more seldom. One
        that has stopped changing is bslite's again.
        """
        with self._lock:
            self._waited += 1
            if self._waited & (self._waited - 1):
                return False
            if self._state is not None and not self._state.watch.structure_changed():
                self._restarts, self._waited, self.kinds.left = 0, 0, ""
                self._state = None
            return True

    def _watch(self, before: Watch | None) -> Watch:
        """Compare with the present state from now on. ``before``: what watched since the last change of the
        structure.
        """
        tensors = [*reachable_tensors(self.module, self.noted), *self.kinds.constants()]
        return Watch(self.module, tensors, before.surroundings if before else None, self.noted)

    def _prepare(
        self, state: State, key: Key, tensors: Sequence[Tensor], objects: Sequence[Any],
        args: tuple[Any, ...], kwargs: dict[str, Any],
    ) -> Run | InTorch:  # fmt: skip
        """The function for this call, made if there is none yet."""
        why = next(
            filter(None, map(reasons.of_tensor, tensors)), "" if tensors else "no argument is a tensor"
        )
        why = why or place.wrong(tensors, state.watch.tensors)
        if why:
            return InTorch(why)
        with self._lock:
            # Another thread may have found out since that values matter.
            key = (key[0], self.kinds.values(args, kwargs, tensors))
            if (known := state.calls.find(key)) is not None:
                return known
            if (grown := state.grown_from(key, tensors)) is not None:
                return state.calls.put(key, grown)
            found, specialised = self._kind(args, kwargs, tensors, objects)
            specialised.note(tensors)
            run: Run | InTorch
            blueprint = specialised.blueprint
            if isinstance(blueprint, InTorch):
                if blueprint.passing:
                    return blueprint
                run = blueprint
            elif why := blueprint.capture.refusal(
                given := [*tensors, *counted(objects, blueprint.capture.counters)]
            ):
                run = InTorch(why)
            else:
                try:
                    executable = self._executable(state, found, blueprint, given)
                    run = NOTHING if executable is None else executable.prepared(given)
                except BsliteError as e:
                    if self.options.fallback == "error" and isinstance(e, UnsupportedError):
                        raise
                    run = InTorch(str(e))
            key = (key[0], self.kinds.values(args, kwargs, tensors))
            if not isinstance(run, InTorch):
                state.note(key, specialised, run)
            return state.calls.put(key, run)

    def _executable(
        self, state: State, found: Key, blueprint: Blueprint, tensors: Sequence[Tensor]
    ) -> Executable | None:
        """The models for the present weights; None if bslite runs no part."""
        same = (e for e in state.executables.values() if e.blueprint is blueprint)
        executable = state.executables.get(found) or next(same, None)
        if executable is not None:
            state.executables[found] = executable
        elif blueprint.in_bslite:
            made = [*self.kinds.tuned, *(m for e in state.executables.values() for m in e.models)]
            self.kinds.tuned = []
            try:
                executable = Executable(blueprint, self.module, self.options.threads, made, state.first)
            except BsliteError:
                if blueprint.surveyed:
                    raise
                blueprint.survey(place.ops_of(state.watch.tensors))
                self.kinds.choose(blueprint, tensors)
                if not blueprint.in_bslite:
                    return None
                made, self.kinds.tuned = [*self.kinds.tuned, *made], []
                executable = Executable(blueprint, self.module, self.options.threads, made, state.first)
            state.first = state.first or next((m.spec for m in executable.models), None)
            for key, other in list(state.executables.items()):
                if any(serves(m.spec, o.spec) for o in other.models for m in executable.models if m is not o):
                    del state.executables[key]  # to be made again, of these models
                    state.forget_calls()
            state.executables[found] = executable
        return executable

    def kind_of(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: Sequence[Tensor], objects: Sequence[Any]
    ) -> Kind:
        """The specialisation that serves a call."""
        with self._lock:
            return self._kind(args, kwargs, tensors, objects)[1]

    def _kind(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: Sequence[Tensor], objects: Sequence[Any]
    ) -> tuple[Key, Kind]:
        """The specialisation for this kind of call; what its trace holds is watched."""
        watched, noted = set(map(id, self.kinds.constants())), self.noted.places
        found, kind = self.kinds.find(args, kwargs, tensors, objects)
        if self._state is not None and (
            noted is not self.noted.places or not watched.issuperset(map(id, self.kinds.constants()))
        ):
            self._state.watch = self._watch(self._state.watch)
        return found, kind

    def _forgotten(self, key: Key) -> None:
        if self._state is not None:
            self._state.executables.pop(key, None)
            self._state.forget_calls()


def runner_of(module: Any) -> Runner:
    """The runner of a wrapped module. Raises InputError for any other."""
    runner = getattr(type(module), SLOT, None)
    if runner is None:
        raise InputError(f"expected a module made by bslite.optimize, got {type(module).__name__}")
    found: Runner = runner.__get__(module)
    return found
