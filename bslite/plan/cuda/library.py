"""Torch calls that compute the same result as a launch."""

from dataclasses import dataclass

from bslite.kernels.contracts.activation import IDENTITY, Activation
from bslite.plan.core.views import View


@dataclass(frozen=True)
class LibraryCall:
    """``y = activation(op(x, w) + bias + residual)``, in place of ``steps`` launches. Weights and bias are
    the first launch's operands. ``op`` is a function of ``torch.nn.functional``.
    """

    op: str
    x: View
    y: View
    residual: View | None = None
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    groups: int = 1
    activation: Activation = IDENTITY
    steps: int = 1

    @property
    def views(self) -> list[View]:
        """All views that the call touches besides constants."""
        return [v for v in (self.x, self.y, self.residual) if v is not None]
