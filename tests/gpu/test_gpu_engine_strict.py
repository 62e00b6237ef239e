"""torch's settings while it computes for the engine. They exist without a GPU."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from bslite.engines.cuda.strict import strict  # noqa: E402

CUDNN, MATMUL = torch.backends.cudnn, torch.backends.cuda.matmul
NEW = hasattr(CUDNN, "conv")


def read(what: Callable[[], Any]) -> Any:
    try:
        return what()
    except RuntimeError:
        return "cannot be read: old and new say different things"


def state() -> dict[str, Any]:
    """Everything that can be set."""
    found = {
        "matmul": read(torch.get_float32_matmul_precision),
        "matmul tf32": read(lambda: MATMUL.allow_tf32),
        "cudnn tf32": read(lambda: CUDNN.allow_tf32),
        "autocast": torch.is_autocast_enabled("cuda"),
        **{name: getattr(CUDNN, name) for name in ("enabled", "benchmark", "deterministic")},
    }
    if NEW:
        places = {"all": torch.backends, "cudnn": CUDNN, "conv": CUDNN.conv, "rnn": CUDNN.rnn, "mm": MATMUL}
        found |= {f"{name} precision": at.fp32_precision for name, at in places.items()}
    return found


@pytest.fixture(autouse=True)
def _as_torch_comes() -> Iterator[None]:
    """Whatever a test sets is set back."""
    yield
    torch.set_autocast_enabled("cuda", False)
    torch.set_float32_matmul_precision("highest")
    CUDNN.benchmark, CUDNN.deterministic, CUDNN.allow_tf32 = False, False, True
    if NEW:
        torch.backends.fp32_precision = CUDNN.fp32_precision = MATMUL.fp32_precision = "none"
        CUDNN.conv.fp32_precision = CUDNN.rnn.fp32_precision = "tf32"


SETTINGS: dict[str, Callable[[], Any]] = {
    "nothing": lambda: None,
    "old: high": lambda: torch.set_float32_matmul_precision("high"),
    "old: medium": lambda: torch.set_float32_matmul_precision("medium"),
    "old: matmul": lambda: setattr(MATMUL, "allow_tf32", True),
    "old: cudnn": lambda: setattr(CUDNN, "allow_tf32", False),
    "benchmark": lambda: setattr(CUDNN, "benchmark", True),
    "autocast": lambda: torch.set_autocast_enabled("cuda", True),
}
if NEW:
    SETTINGS |= {
        "new: all tf32": lambda: setattr(torch.backends, "fp32_precision", "tf32"),
        "new: all ieee": lambda: setattr(torch.backends, "fp32_precision", "ieee"),
        "new: cudnn tf32": lambda: setattr(CUDNN, "fp32_precision", "tf32"),
        "new: conv ieee": lambda: setattr(CUDNN.conv, "fp32_precision", "ieee"),
        "new: rnn ieee": lambda: setattr(CUDNN.rnn, "fp32_precision", "ieee"),
        "new: matmul tf32": lambda: setattr(MATMUL, "fp32_precision", "tf32"),
        "new: matmul ieee": lambda: setattr(MATMUL, "fp32_precision", "ieee"),
    }


def is_strict() -> bool:
    """Whether neither the old switches nor the new precisions allow less than float32."""
    now = state()
    new = all(now[f"{name} precision"] == "ieee" for name in ("conv", "rnn", "mm")) if NEW else True
    return new and now["matmul"] == "highest" and not (
        now["matmul tf32"] or now["cudnn tf32"] or now["benchmark"] or now["autocast"]
    ) and now["deterministic"]  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_whatever_the_caller_set(name: str) -> None:
    """Full float32 within, and afterwards exactly what was there."""
    SETTINGS[name]()
    before = state()
    with strict(torch):
        assert is_strict()
        assert torch.is_inference_mode_enabled()
    assert state() == before
    assert not torch.is_inference_mode_enabled()


def test_several_threads() -> None:
    """Who ends first leaves the other strict; who ends last sets back what was there before both."""
    torch.set_float32_matmul_precision("high")
    before, inside, leave = state(), threading.Event(), threading.Event()

    def other() -> None:
        with strict(torch):
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(60)
    with strict(torch):
        leave.set()
        thread.join()
        assert is_strict()
    assert state() == before
