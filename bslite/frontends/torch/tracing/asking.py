"""Values that a forward asks for, to choose what it does: ``if x.max() > 1``, an assertion, a loop.

A trace knows no values. It can go the way that the forward goes for one input, told the same answers, and
have what was asked about among its results. Who runs it sees whether the answers are the same for another.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bslite.frontends.common.lazy import load_torch
from bslite.frontends.torch.tracing.faithful import run_before

if TYPE_CHECKING:
    import torch

#: Functions that answer with a truth value, and those that answer with a number, which is whole if they are.
TRUTHS = ("__bool__", "is_nonzero", "equal", "allclose")
NUMBERS = ("item", "__int__", "__index__")
MOST = 64  # questions
#: Code that asks in eager mode alone, whether a mask masks anything: its result is the same with the mask.
IDLE = "transformers.masking_utils"


class Asking:
    """The questions of one run of a forward. ``answers``: what it is told; None: the truth, to be noted."""

    def __init__(self, answers: Sequence[bool | int] | None = None) -> None:
        self.answers: list[bool | int] = list(answers or ())
        self.questions: list[torch.Tensor] = []  # of one element each, which is the answer
        self._told = answers is not None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """A forward runs, traced if answers are known.

        Raises NotImplementedError if its questions are not those that the answers are to.
        """
        from torch.overrides import TorchFunctionMode

        asking = self

        class Mode(TorchFunctionMode):
            def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                return asking._call(func, args, kwargs or {})

        self.questions = []
        if not self._told:
            self.answers = []
        with Mode():
            yield
        if len(self.questions) != len(self.answers):
            raise NotImplementedError("it asks for fewer values when it is traced")

    def _call(self, function: Any, args: Any, kwargs: Any) -> Any:
        question = _question(getattr(function, "__name__", ""), args, kwargs)
        if question is None or _asker() == IDLE:
            return function(*args, **kwargs)
        place = len(self.questions)
        if not self._told:
            self.answers.append(function(*args, **kwargs))
        elif place == len(self.answers):
            raise NotImplementedError("it asks for more values when it is traced")
        if place == MOST:
            raise NotImplementedError("it asks for too many values")
        self.questions.append(question)
        return self.answers[place]


def _asker() -> str:
    """The module whose code is running, apart from torch's and this one's."""
    frame = sys._getframe(1)
    names = ("torch", __name__)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(names):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__"))


def answers_of(
    module: "torch.nn.Module", asking: Asking, args: Sequence[Any], gradients: bool = False
) -> list[bool | int]:
    """What a module's forward, which ``asking`` listens to, is answered in eager mode; none if it fails."""
    return list(asking.answers) if run_before(module, args, gradients=gradients) else []


def _question(name: str, args: Any, kwargs: Any) -> Any:
    """What a call of a function asks about; None if it asks for nothing that a trace can be told."""
    torch = load_torch()
    if name not in (*TRUTHS, *NUMBERS) or not args or not isinstance(args[0], torch.Tensor):
        return None
    tensor = args[0].detach()
    if name in ("equal", "allclose"):
        other = args[1] if len(args) > 1 else kwargs["other"]
        if tensor.shape != other.shape:
            return None
        same = torch.eq if name == "equal" else torch.isclose
        return same(tensor, other, *args[2:]).all() if len(kwargs) == 0 else None
    if tensor.numel() != 1:
        return None
    if name in NUMBERS and (tensor.is_floating_point() or tensor.is_complex()):
        return None
    # A copy: the forward may write to the tensor later.
    return (tensor.reshape(()) != 0) if name in TRUTHS else tensor.reshape(()).clone()
