"""A compiled model as a function of rows: what is asked for together has the bits of what is asked alone."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bslite.compiled.model import CompiledModel
from bslite.compiled.outputs import Outputs
from bslite.compiled.together import mixed, together
from bslite.errors import BsliteError, InputError, SpecError
from bslite.spec import Array
from bslite.spec.open import OpenModel


class Rows:
    """``model``, whose inputs and outputs have rows at axis 0, for many callers at once.

    ``single``: the model's batch is fixed to one row. ``apart``: requests are computed one after the other,
    because of that, or because a part of the model runs outside the engine, which alone promises equal bits.

    A row's answer must not depend on the rows beside it. This is tried out at once, on two rows together and
    apart: ``example`` has an array of two rows or more for each input, by name; by default they are drawn at
    random, of the model's example sizes. The trial also makes the model ready for those sizes.

    Raises SpecError if the model does not take rows or mixes them, InputError if ``example`` does not fit it.
    """

    def __init__(self, model: CompiledModel, example: Mapping[str, Array] | None = None) -> None:
        self.model = model
        self.names = [port.name for port in model.inputs]
        self.single = check_rows(model)
        self._try(_drawn(model) if example is None else self._given(example))
        self.apart = self.single or not all(line.startswith("engine") for line in model.pieces)

    def __call__(self, asked: Sequence[Sequence[Array]]) -> list[Outputs | BsliteError]:
        """The results for each of ``asked``, which has one array per input, or the error that it met.

        What has the same sizes beyond axis 0 is computed together.
        """
        alike: dict[Any, list[int]] = {}
        found: list[Outputs | BsliteError] = [InputError("not asked")] * len(asked)
        for i, arrays in enumerate(asked):
            if (wrong := self._wrong(arrays)) is not None:
                found[i] = wrong
            else:
                key = i if self.apart else tuple((x.shape[1:], x.dtype) for x in arrays)
                alike.setdefault(key, []).append(i)
        for places in alike.values():
            for i, answer in zip(places, self._together([asked[i] for i in places]), strict=True):
                found[i] = answer
        return found

    def _together(self, asked: Sequence[Sequence[Array]]) -> Iterable[Outputs | BsliteError]:
        try:
            return map(Outputs, together(self.model, asked))
        except BsliteError as e:
            return [e] if len(asked) == 1 else [a for one in asked for a in self._together([one])]

    def _wrong(self, arrays: Sequence[Array]) -> InputError | None:
        """What keeps the arrays from being rows."""
        for name, x in zip(self.names, arrays, strict=True):
            if not isinstance(x, np.ndarray):
                return InputError(f"input {name!r} is a {type(x).__name__}; expected a NumPy array")
            if not x.ndim or len(x) != len(arrays[0]):
                rows = f"{len(x)} rows" if x.ndim else "no axis of rows"
                return InputError(
                    f"input {name!r} has {rows}, input {self.names[0]!r} {len(arrays[0])}: "
                    f"all inputs of model {self.model.name!r} need as many"
                )
        return None

    def _given(self, example: Mapping[str, Array]) -> list[list[Array]]:
        if sorted(example) != sorted(self.names):
            raise InputError(
                f"example has arrays for {', '.join(map(repr, example)) or 'no input'}; model "
                f"{self.model.name!r} takes {', '.join(map(repr, self.names))}"
            )
        arrays = [example[name] for name in self.names]
        if (wrong := self._wrong(arrays)) is not None:
            raise wrong
        if len(arrays[0]) < 2:
            raise InputError(
                f"example has {len(arrays[0])} rows; two are needed, to tell that none depends on another"
            )
        return [[x[i : i + 1] for x in arrays] for i in range(len(arrays[0]))]

    def _try(self, rows: Sequence[Sequence[Array]]) -> None:
        """SpecError unless the answer to several rows is the answers to each."""
        apart = [self.model(*arrays) for arrays in rows]
        for name, y in apart[0].items():
            if not isinstance(y, np.ndarray) or not y.ndim or len(y) != 1:
                what = (
                    f"has shape {list(y.shape)}" if isinstance(y, np.ndarray) else f"is a {type(y).__name__}"
                )
                raise SpecError(
                    f"model {self.model.name!r}: for one row, output {name!r} {what}; expected one row"
                )
        if self.single:
            return
        try:
            made = together(self.model, rows)
        except SpecError as e:
            raise SpecError(f"model {self.model.name!r}: {e}") from None
        if (other := mixed(made, apart)) is not None:
            raise SpecError(
                f"model {self.model.name!r} mixes rows: output {other!r} of a row depends on the rows "
                "beside it"
            )


def check_rows(model: CompiledModel) -> bool:
    """Whether the model takes exactly one row; SpecError if its inputs have no axis of rows."""
    firsts = [port.shape[0] if port.shape else 0 for port in model.inputs]
    if all(first == 1 for first in firsts):
        return True
    if any(isinstance(first, int) for first in firsts):
        raise SpecError(
            f"model {model.name!r} takes no rows: axis 0 of every input must be open, or 1; the inputs are "
            f"{', '.join(map(str, model.inputs))}"
        )
    return False


def _drawn(model: CompiledModel) -> list[list[Any]]:
    """Two rows of noise."""
    behind, rng = model._bslite_model, np.random.default_rng(0)
    if not isinstance(behind, OpenModel):
        return [[i.draw(rng, (1, *i.example[1:])) for i in behind.inputs] for _ in range(2)]
    try:
        first = behind.example({}, batch=1)
        return [first, [port.draw(rng, x.shape) for port, x in zip(behind.inputs, first, strict=True)]]
    except InputError as e:
        raise InputError(f"{e}; give `example`: two rows or more for each input, by name") from None
