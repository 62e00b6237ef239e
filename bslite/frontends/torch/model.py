"""`TorchModel`: a module's model for the sizes of its example, which makes the models for other sizes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bslite.cache import Recent, by_operations
from bslite.errors import InputError, SpecError
from bslite.frontends.torch.sizes import Sizes, bound_to
from bslite.ops import Shape
from bslite.spec import ModelSpec
from bslite.spec.open import OpenModel, Settled

MOST_SHAPES = 256  # kinds of inputs that are known to fit


class TorchModel(ModelSpec, OpenModel):  # type: ignore[misc]  # of the inputs, a ModelSpec says more
    """The model that `bslite.from_torch` makes of a module that leaves more sizes free than one graph can
    express.

    As a ModelSpec it has the example's sizes where they cannot be free. `bslite.run`, `compile`, `verify` and
    `explain` take inputs of the others, too: the sizes in the way are fixed to those of the call. That makes
    a ModelSpec from the same export, without tracing or compilation. Recent ones are kept
    (`bslite.cache.by_operations`); they share parameters and packed weights. ``open_shapes`` has the inputs'
    sizes, free ones by name; ``specialised`` lists what is kept.
    """

    open_shapes: tuple[tuple[int | str, ...], ...]

    @classmethod
    def of(cls, base: ModelSpec, sizes: Sizes, made: Callable[[Mapping[Any, int]], ModelSpec]) -> Any:
        """``base``: the model for the example; ``made``: that for other sizes, by symbol."""
        kinds = (base.name, base.inputs, base.nodes, base.outputs, base.params, base.labels, base.owners)
        model = cls(*kinds)
        free = {d for i in base.inputs for d in i.shape if isinstance(d, str)}
        left = frozenset(s for s in sizes.example if sizes.names[s] not in free)
        shapes = tuple(sizes.named(traced) for traced in sizes.inputs)
        state = {"base": base, "_sizes": sizes, "_made": made, "_left": left, "open_shapes": shapes}
        fitting = Recent[tuple[Shape, ...], dict[Any, int]](MOST_SHAPES)
        model.__dict__.update(state, _kept=by_operations(lambda spec: len(spec.nodes)), _fitting=fitting)
        return model

    base: ModelSpec
    _sizes: Sizes
    _made: Callable[[Mapping[Any, int]], ModelSpec]
    _left: frozenset[Any]
    _kept: Recent[tuple[int, ...], ModelSpec]
    _fitting: Recent[tuple[Shape, ...], dict[Any, int]]

    def settle(self, given: Sequence[Any]) -> Settled:
        """See `OpenModel`."""
        if len(given) != len(self.inputs) or not all(hasattr(x, "shape") for x in given):
            raise InputError(f"model {self.name!r} takes {len(self.inputs)} arrays or tensors")
        return Settled(
            self.spec_for([tuple(x.shape) for x in given]), list(given), [None] * len(self.outputs)
        )

    def example(self, given: Mapping[str, Any], batch: int | None = None, seed: int = 0) -> list[Any]:
        """See `OpenModel`."""
        rng = np.random.default_rng(seed)
        made = []
        for declared, opened in zip(self.inputs, self.open_shapes, strict=True):
            shape = declared.example
            if batch is not None and opened and isinstance(opened[0], str):
                shape = (batch, *shape[1:])
            x = given.get(declared.name, shape)
            made.append(declared.draw(rng, x) if isinstance(x, tuple) else x)
        self.settle(made)
        return made

    def spec_for(self, shapes: Sequence[Shape]) -> ModelSpec:
        """The model for inputs of these shapes. InputError, naming input and axis, if there is none."""
        fixed = self._fitting.get(tuple(map(tuple, shapes)), lambda: self._fixed(shapes))
        if all(n == self._sizes.example[s] for s, n in fixed.items()):
            return self.base
        try:
            return self._kept.get(tuple(fixed.values()), lambda: self._made(fixed))
        except SpecError as e:  # torch's own operations ask for sizes, too: a pool, whether a window fits
            raise self._unlike_the_trace(bound_to(self._sizes, self.inputs, shapes), f" ({e})") from e

    def _fixed(self, shapes: Sequence[Shape]) -> dict[Any, int]:
        """The sizes that a ModelSpec cannot leave free, by symbol, as inputs of these shapes have them."""
        bound = bound_to(self._sizes, self.inputs, shapes)
        if not self._sizes.hold(bound):
            raise self._unlike_the_trace(bound)
        return {s: bound[s] for s in self._sizes.example if s in self._left}

    def _unlike_the_trace(self, bound: Mapping[Any, int], reason: str = "") -> InputError:
        """The error for sizes at which the trace does not hold."""
        return InputError(
            f"model {self.name!r} was traced for {self._told(self._sizes.example)}; for {self._told(bound)} "
            f"the module may compute something else{reason}: trace it with such an example"
        )

    def another(self) -> ModelSpec | None:
        """A model with all sizes that are fixed other than the example's, for a look at its shapes."""
        for sizes in self._sizes.probes():
            if all(sizes[s] != self._sizes.example[s] for s in self._left):
                return self._made({s: sizes[s] for s in self._left})
        return None

    def _told(self, sizes: Mapping[Any, int]) -> str:
        return ", ".join(f"{self._sizes.names[s]} = {n}" for s, n in sizes.items())

    def copy(self) -> "TorchModel":
        """The same, for which engines keep what they make apart."""
        return self.of(self.base.replace(), self._sizes, self._made)

    def specs(self) -> list[ModelSpec]:
        """The models that are kept, that of the example first."""
        return [self.base, *self._kept.values()]

    @property
    def specialised(self) -> list[str]:
        """The inputs of each model that is kept, the most recent one last."""
        return [", ".join(f"{i.name}: {i.wants}" for i in spec.inputs) for spec in self.specs()]

    def replace(self, **changes: Any) -> Any:
        """The model for the example's sizes with some fields changed: no other sizes."""
        return self.base.replace(**changes)

    def __reduce__(self) -> Any:
        return self.base.__reduce__()
