"""A stream, or a batch of streams, through a recurrent model: its state is carried from call to call."""

import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bslite.api import as_array, as_arrays, check_threads
from bslite.arithmetic import Precision, current, precision_of
from bslite.arithmetic import precision as least
from bslite.cache import Recent
from bslite.errors import EngineError, InputError
from bslite.ops import Shape
from bslite.spec import Array, Input, ModelSpec
from bslite.streaming.flow import Flow, flow_of
from bslite.streaming.places import Steps
from bslite.streaming.stepping import State, starting, states_of, stepping

MAX_LENGTHS = 8  # chunk lengths planned for, per model and batch: beyond, the least recently used is dropped
#: Weights, in bytes, from which a second core is worth waking for one time step. At 2 MB one thread took
#: 43 µs, two 61 (medians, two busy cores), and a thread that is not scheduled costs milliseconds.
SHARED_FROM = 4 * 2**20


class Session:
    """``spec`` over sequences that arrive piece by piece.

    ``step(x)`` takes one time step, ``run(x)`` a chunk of several. Both give the outputs of the steps just
    taken, with the bits that the model gives for the whole sequence so far. An output without a time axis (a
    last state, a last step) is that of the latest step.

    ``batch`` is the number of streams side by side, where the model leaves the size "N" free. ``held`` gives
    the inputs that are not sequences, by name, such as initial states; they hold until `reset` gives others.
    ``threads`` is as for `bslite.run`; by default a small model takes one, because a second thread would only
    delay it. ``precision`` is as for `bslite.run`. Several sessions of one spec share its packed weights.
    Several threads may use one session, one at a time.

    Raises SpecError for a model without recurrent layers, UnsupportedError naming every layer that mixes time
    steps (backward and bidirectional layers, convolutions or reductions over time, attention, ...),
    InputError for inputs that do not fit, EngineError where states take more memory than there is.
    """

    def __init__(
        self,
        spec: ModelSpec,
        *,
        batch: int | None = None,
        held: Mapping[str, Any] | None = None,
        threads: int | None = None,
        precision: str | None = None,
    ) -> None:
        if not isinstance(spec, ModelSpec):
            raise InputError(f"Session() takes a ModelSpec, got {type(spec).__name__}")
        if batch is not None and (isinstance(batch, bool) or not isinstance(batch, int) or batch < 1):
            raise InputError(f"batch must be a positive integer, got {batch!r}")
        check_threads(threads)
        self.spec = spec
        self._streams = _streams_of(spec, batch)
        if batch is not None and any(s.shape[0] != batch for s in self._streams.states):
            raise InputError(
                f"model {spec.name!r} is for a batch of {self._streams.states[0].shape[0]}, got batch={batch}"
            )
        self._threads = self._streams.threads if threads is None else threads
        self._precision = current() if precision is None else precision_of(precision)
        self._lock = threading.Lock()
        self._now, self._next = (_Buffers(self._streams.states) for _ in range(2))
        self._calls: Recent[int, _Call] = Recent(MAX_LENGTHS)
        self.steps = 0  # time steps taken since the start
        self._held: dict[str, Array] = {}
        self._start: list[Array] = []
        self.reset(held=held or {})

    def step(self, x: Any) -> Any:
        """The model's output for one time step: ``x``, and what is returned, have no time axis.

        ``x``: an array or CPU tensor, or a list of them where the model has several sequences. Torch in,
        torch out. Several outputs make a list. After an error the state is as it was.
        """
        return self._take(x, 1, True)

    def run(self, x: Any) -> Any:
        """The model's output for a chunk of time steps, of any number, along the model's own time axis."""
        first = x[0] if isinstance(x, (list, tuple)) and x else x
        shape = tuple(getattr(first, "shape", ()))
        axis = self._streams.axes[0]
        if axis >= len(shape) or not shape[axis]:
            declared = self._streams.flow.sequences[0]
            raise InputError(
                f"input {declared.name!r}: got {list(shape)}, "
                f"expected a chunk of time steps along axis {axis}"
            )
        return self._take(x, shape[axis], False)

    def reset(self, *, held: Mapping[str, Any] | None = None, streams: Sequence[int] | None = None) -> None:
        """Go back to the start: to the model's initial state, zeros where it has none.

        ``held``: new values for inputs that are no sequence. ``streams``: of the batch, only these; the
        others go on.
        """
        with self._lock:
            found = self._held if held is None else self._checked_held(held)
            with least(self._precision):
                start = self._streams.start(found)
            if streams is None:
                self._held, self._start, self.steps = found, start, 0
                for now, first in zip(self._now.arrays, start, strict=True):
                    now[:] = first
                return
            if isinstance(streams, (int, str)):
                raise InputError(f"streams is {streams!r}, expected a list of their numbers")
            rows, size = list(streams), self._streams.states[0].shape[0]
            wrong = [r for r in rows if isinstance(r, bool) or not isinstance(r, int) or not 0 <= r < size]
            if wrong:
                raise InputError(f"there is no stream {wrong[0]!r}: they are numbered 0 to {size - 1}")
            if held is not None:
                raise InputError("held inputs are for all streams: give them without `streams`")
            for now, first in zip(self._now.arrays, start, strict=True):
                now[rows] = first[rows]

    @property
    def step_inputs(self) -> list[Input]:
        """What `step` takes: the sequences, without their time axis."""
        streams = self._streams
        shapes = [
            _without(streams.flow.shapes[i.name], a)
            for i, a in zip(streams.flow.sequences, streams.axes, strict=True)
        ]
        return [Input(i.name, s, dtype=i.dtype) for i, s in zip(streams.flow.sequences, shapes, strict=True)]

    @property
    def state(self) -> dict[str, Array]:
        """Copies of the state after the latest step: ``"layer.h"``, of LSTMs ``"layer.c"`` -> ``[N, H]``."""
        with self._lock:
            return {s.name: now.copy() for s, now in zip(self._streams.states, self._now.arrays, strict=True)}

    @state.setter
    def state(self, given: Mapping[str, Any]) -> None:
        wanted = {s.name: s for s in self._streams.states}
        if not isinstance(given, Mapping):
            raise InputError(f"a state is a dict of {', '.join(wanted)}, got a {type(given).__name__}")
        missing, unknown = [n for n in wanted if n not in given], [n for n in given if n not in wanted]
        if missing or unknown:
            raise InputError(
                f"the state of {self.spec.name!r} has {', '.join(wanted)}"
                + (f"; missing: {', '.join(missing)}" if missing else "")
                + (f"; unknown: {', '.join(map(str, unknown))}" if unknown else "")
            )
        arrays = [_state_array(given[s.name], s) for s in self._streams.states]
        with self._lock:
            for now, array in zip(self._now.arrays, arrays, strict=True):
                now[:] = array

    def _checked_held(self, held: Mapping[str, Any]) -> dict[str, Array]:
        """The held inputs, each checked."""
        flow = self._streams.flow
        names = {i.name: i for i in flow.held}
        unknown = [name for name in held if name not in names]
        if unknown:
            which = ", ".join(names) or "none"
            raise InputError(f"model {self.spec.name!r} has no held input {unknown[0]!r}; it has: {which}")
        missing = [name for name in names if name not in held]
        if missing:
            raise InputError(
                f"model {self.spec.name!r} also takes {', '.join(missing)}, which are no sequences: "
                "give them as held={name: array}"
            )
        if not names:
            return {}
        fixed = tuple(Input(i.name, flow.shapes[i.name], dtype=i.dtype) for i in flow.held)
        only = ModelSpec(self.spec.name, fixed, (), (fixed[0].name,), {})  # to check arrays against
        arrays, _ = as_arrays(only, [held[i.name] for i in flow.held])
        return {i.name: np.array(a) for i, a in zip(flow.held, arrays, strict=True)}

    def _take(self, x: Any, steps: int, single: bool) -> Any:
        with self._lock:
            call = self._calls.get(steps, lambda: _Call(self._streams, steps, self._threads, self._precision))
            arrays, as_torch = call.arrays(x, single)
            made = call.run(arrays, self._held, self._now, self._next, single)
            self._now, self._next = self._next, self._now
            self.steps += steps
        if as_torch:
            made = [sys.modules["torch"].from_numpy(y) for y in made]
        return made[0] if len(made) == 1 else made


class _Buffers:
    """Memory for the states of all layers; the engine reads one set of it and writes the other."""

    def __init__(self, states: Sequence[State]) -> None:
        try:
            self.arrays = [np.zeros(s.shape, np.float32) for s in states]
        except (MemoryError, ValueError) as e:  # more bytes than there are, or than can be counted
            raise EngineError(f"no memory for the states of {states[0].shape[0]} streams: {e}") from e
        self.addresses = [a.ctypes.data for a in self.arrays]


class _Call:
    """One number of steps, planned: arrays in, arrays out, by their addresses."""

    def __init__(self, streams: "Streams", steps: int, threads: int | None, precision: Precision) -> None:
        # Numba only where it is needed.
        from bslite.engines.common import cells
        from bslite.engines.cpu.engine import engine_for
        from bslite.engines.cpu.session import address_of
        from bslite.engines.cpu.threads import default_threads
        from bslite.plan.core.views import contiguous
        from bslite.plan.cpu.tuning import Tuning

        self._from_cells, self._to_cells, self._address_of = cells.from_cells, cells.to_cells, address_of
        self.spec = spec = streams.model(steps)
        shapes = [i.example for i in spec.inputs]
        self._session = engine_for(spec).session(
            shapes, [contiguous(s) for s in shapes], threads or default_threads(), False,
            tuning=Tuning(precision=precision),
        )  # fmt: skip
        count = len(streams.flow.sequences)
        self._inputs = spec.inputs[:count]  # then those that are held, then the states
        self._held_names = [i.name for i in spec.inputs[count : len(spec.inputs) - len(streams.states)]]
        self._shapes: dict[bool, list[Shape]] = {
            single: [
                _without(i.example, axis) if single else i.example
                for i, axis in zip(self._inputs, streams.axes, strict=True)
            ]
            for single in (False, True)
        }
        self._outputs = [
            (spec.dtypes[name], shape, _stepped(shape, streams.flow, name))
            for name, shape in zip(streams.spec.outputs, self._session.output_shapes, strict=False)
        ]  # the states come behind them

    def arrays(self, x: Any, single: bool) -> tuple[list[Array], bool]:
        """The sequences of a call, checked, row-major cells."""
        given = x if isinstance(x, (list, tuple)) else (x,)
        if len(given) != len(self._inputs):
            names = ", ".join(i.name for i in self._inputs)
            raise InputError(f"expected {len(self._inputs)} sequence(s) ({names}), got {len(given)}")
        as_torch, arrays = False, []
        torch = sys.modules.get("torch")
        for declared, shape, value in zip(self._inputs, self._shapes[single], given, strict=True):
            if type(value) is not np.ndarray and torch is not None and isinstance(value, torch.Tensor):
                as_torch = True
                value = value.detach().numpy() if value.device.type == "cpu" else value
            if type(value) is not np.ndarray or value.dtype != declared.dtype:
                value = as_array(declared, value, torch)  # raises, but for a subclass of ndarray
            if value.shape != shape:
                what = "of one time step" if single else "of the chunk"
                raise InputError(
                    f"input {declared.name!r} {what} is {list(value.shape)}, expected {list(shape)}"
                )
            arrays.append(value)
        return arrays, as_torch

    def run(
        self,
        sequences: Sequence[Array],
        held: Mapping[str, Array],
        before: _Buffers,
        after: _Buffers,
        single: bool,
    ) -> list[Array]:
        """Outputs; ``after`` is filled in. A failure leaves ``before`` as it is."""
        address_of, from_cells, to_cells = self._address_of, self._from_cells, self._to_cells
        kept = []  # until the engine has read them
        for declared, value in zip(self._inputs, sequences, strict=True):
            cells = to_cells(value, f"input {declared.name!r}")
            whole = cells.flags.c_contiguous and cells.flags.aligned
            kept.append(cells if whole else np.array(cells, order="C"))
        kept += [to_cells(held[name], f"input {name!r}") for name in self._held_names]
        made = [np.empty(stepped if single else chunk, np.float32) for _, chunk, stepped in self._outputs]
        ends = [*map(address_of, kept), *before.addresses, *map(address_of, made), *after.addresses]
        self._session.run_at(ends)
        return [from_cells(y, dtype) for y, (dtype, _, _) in zip(made, self._outputs, strict=True)]


class Streams:
    """What all sessions of one spec and batch share: the flow of time, the step models, packed weights."""

    def __init__(self, spec: ModelSpec, batch: int | None) -> None:
        self.spec, self.flow = spec, flow_of(spec, batch)
        self.states = states_of(self.flow)
        places = [self.flow.places[i.name] for i in self.flow.sequences]
        self.axes = [p.axis for p in places if isinstance(p, Steps)]
        keys = {key for n in spec.nodes if n.op != "gather" for key in n.params.values()}
        weights = sum(spec.params[key].nbytes for key in keys if spec.params[key].ndim > 1)
        self.threads: int | None = 1 if weights < SHARED_FROM else None
        self._models: Recent[int, ModelSpec] = Recent(MAX_LENGTHS)
        self._starting = starting(self.flow, self.states)

    def model(self, steps: int) -> ModelSpec:
        """The model of so many steps; all of them share the packed weights."""
        from bslite.engines.cpu.engine import engine_for

        def make() -> ModelSpec:
            made = stepping(self.flow, self.states, steps)
            engine_for(made, like=self.spec)
            return made

        return self._models.get(steps, make)

    def start(self, held: Mapping[str, Array]) -> list[Array]:
        """The states before the first step."""
        made: dict[str, Array] = {}
        if self._starting is not None:
            from bslite.engines.cpu.engine import run

            model = self._starting
            given = [held.get(i.name, np.zeros(i.example, np.float32)) for i in model.inputs]
            made = dict(zip(model.outputs, run(model, given), strict=True))
        return [
            _state_array(made[s.start], s) if s.start else np.zeros(s.shape, np.float32) for s in self.states
        ]


def zeros_held(spec: ModelSpec, batch: int | None = None) -> dict[str, Array]:
    """Zeros for every input that is not a sequence, as `Session` takes them as ``held``."""
    flow = _streams_of(spec, batch).flow
    return {i.name: np.zeros(flow.shapes[i.name], i.dtype) for i in flow.held}


def _streams_of(spec: ModelSpec, batch: int | None) -> Streams:
    """The `Streams` of a spec and batch, made on first use and kept on the spec."""
    known = spec.__dict__.setdefault("_streams", {})
    if batch not in known:
        known[batch] = Streams(spec, batch)
    found: Streams = known[batch]
    return found


def _state_array(value: Any, state: State) -> Array:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if not isinstance(value, np.ndarray) or value.dtype != np.float32 or value.shape != state.shape:
        got = f"{value.dtype} {list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
        raise InputError(f"state {state.name!r} is {got}, expected float32 {list(state.shape)}")
    return value


def _without(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])


def _stepped(shape: Shape, flow: Flow, output: str) -> Shape:
    """The shape of an output of one step, without its time axis where it has one of its own."""
    place = flow.places[output]
    if isinstance(place, Steps) and (place.before, place.after) == (1, 1):
        return _without(shape, place.axis)
    return shape
