"""Second derivatives of a part in training, and batches of its backward pass: torch computes the part again,
its gradients on its own tape.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from bslite.dropin.training.stepping import Peer
from bslite.errors import UnsupportedError

Tensor = torch.Tensor
CANNOT = "bslite cannot differentiate this backward pass: {}; use the module with training=False"


@dataclass(frozen=True)
class Again:
    """A part as torch runs it, for a backward pass that is to be differentiated (``create_graph``), or runs
    for many gradients at once (``is_grads_batched``).

    ``weights``: the last of its ``count`` inputs. ``held``: those inputs that the tape does not save, by
    place, each with its version: tensors that the user or the module has anyway, which cost no memory.
    """

    peer: Peer
    count: int
    weights: Sequence[Tensor]
    held: Mapping[int, tuple[Tensor, int]]

    @classmethod
    def of(cls, peer: Peer, given: Sequence[Tensor], weights: int, reads: Sequence[int]) -> "Again":
        """``given``: inputs, then so many ``weights``. ``reads``: the places of those that the tape saves."""
        held = {i: (t, t._version) for i, t in enumerate(given) if t.is_leaf and i not in reads}
        return cls(peer, len(given), given[len(given) - weights :], held)

    def gradients(
        self, saved: Mapping[int, Tensor], behind: Mapping[int, Tensor], wrt: Sequence[int]
    ) -> list[Tensor | None]:
        """The gradients of the inputs ``wrt``, as functions of all inputs and of the gradients from
        ``behind``, which are by output.

        Raises UnsupportedError where an input is not kept or was changed in place.
        """
        given = {**saved, **{i: tensor for i, (tensor, _) in self.held.items()}}
        places = {id(t): self.count - len(self.weights) + i for i, t in enumerate(self.weights)}
        inputs = range(self.count - len(self.weights))
        known = {places.get(id(t)) for t in self.peer.weights}
        if not given.keys() >= {*inputs, *wrt} or not known.issuperset(i for i in wrt if i not in inputs):
            raise UnsupportedError(CANNOT.format("an input of the part is not kept"))
        if any(tensor._version != version for tensor, version in self.held.values()):
            raise UnsupportedError(CANNOT.format("an input was changed in place since the forward pass"))
        # One input may be computed from another, or be the same: each is a tensor of the part's own, so that
        # its gradient is that of the part alone.
        differentiated = torch.is_grad_enabled()
        with torch.enable_grad():
            given |= {i: given[i].view_as(given[i]) for i in wrt}
            weights = [given.get(places.get(id(t), -1), t) for t in self.peer.weights]
            made = self.peer.run([given[i] for i in inputs], weights)
        return list(
            torch.autograd.grad(
                [made[i] for i in behind],
                [given[i] for i in wrt],
                list(behind.values()),
                create_graph=differentiated,
                allow_unused=True,
            )
        )
