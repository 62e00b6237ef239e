"""`Predictor`: a model as a callable class for Ray Data."""

from collections.abc import Mapping
from typing import Any

from bslite.compiled.outputs import Outputs
from bslite.compiled.rows import Rows
from bslite.errors import BsliteError, InputError
from bslite.ray import columns
from bslite.ray.worker import opened
from bslite.spec import Array


class Predictor:
    """A model over batches of columns, for ``dataset.map_batches``::

        ds.map_batches(
            bslite.ray.Predictor,
            fn_constructor_args=(model,),
            compute=ray.data.ActorPoolStrategy(size=2),
            num_cpus=1,
            batch_size=32,
        )

    ``model``: what `bslite.compile` takes, a torch module excepted, or a reference to it from ``ray.put``;
    each worker opens it once. A path is read by the workers. Axis 0 of the model's inputs and outputs is that
    of rows; it is open, or fixed to 1.

    ``inputs``: input -> column, where the names differ. ``outputs``: output -> name of its new column; what
    it leaves out is dropped. By default every output makes a column of its own name.
    ``threads``: as many as the CPUs that Ray gives to the worker, if it is None.
    ``example``: two rows or more for each input, by name, in the place of noise; see
    `bslite.compiled.rows.Rows`.

    A batch is a dict of NumPy arrays: columns, with a row at each place of axis 0. Columns that the model
    does not take are kept. A row may differ in shape from the next (an array of arrays): rows of one shape
    are computed together. What the engine computes has the same bits in any batch.

    Raises InputError that names the column if one is missing or is not what the model takes, or if a new one
    has the name of one that is there; SpecError if the model does not take rows or mixes them.
    """

    def __init__(
        self,
        model: Any,
        inputs: Mapping[str, str] | None = None,
        outputs: Mapping[str, str] | None = None,
        *,
        threads: int | None = None,
        example: Mapping[str, Array] | None = None,
    ) -> None:
        self.model = opened(model, threads)
        self.takes = columns.taken(self.model.inputs, inputs)
        self.gives = columns.given(self.model.outputs, outputs)
        self._rows = Rows(self.model, example)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """``batch`` with a column more for each output."""
        if not isinstance(batch, Mapping):
            raise InputError(
                f"a batch is a {type(batch).__name__}; expected a dict of NumPy arrays (batch_format='numpy')"
            )
        if taken := [c for c in self.gives.values() if c in batch]:
            raise InputError(
                f"there is a column {taken[0]!r} already: name the output's column by "
                "outputs={OUTPUT: COLUMN}"
            )
        found = [columns.column(batch, port, self.takes[port.name]) for port in self.model.inputs]
        if not len(found[0]):
            ports = [port for port in self.model.outputs if port.name in self.gives]
            return {**batch, **{self.gives[port.name]: columns.nothing(port) for port in ports}}
        made = self._answers(found)
        return {**batch, **{column: columns.joined(made, name) for name, column in self.gives.items()}}

    def _answers(self, found: list[Any]) -> list[Outputs]:
        if self._rows.single or any(isinstance(x, list) for x in found):
            asked = [
                [x[i] if isinstance(x, list) else x[i : i + 1] for x in found] for i in range(len(found[0]))
            ]
        else:
            asked = [found]
        made: list[Outputs] = []
        for answer in self._rows(asked):
            if isinstance(answer, BsliteError):
                where = ", ".join(f"input {i!r} is column {c!r}" for i, c in self.takes.items())
                raise InputError(f"{answer} ({where})") from answer
            made.append(answer)
        return made
