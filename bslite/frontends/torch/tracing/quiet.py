"""torch.export without what it says about its own use of torch, and without the graphs that it prints."""

import builtins
import logging
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

OWN = re.compile(
    r".*isinstance\(treespec, LeafSpec\)|.*_flat_weights\[0\].* were assigned during export"
    r"|The tensor attributes? (self[\w.]*\.weight\w*(, )?)+ (was|were) assigned during export"  # by hooks
)
one_at_a_time = threading.RLock()  # torch's exporter, and what is set for all threads, is not for several
LOGS = ("torch.fx.experimental.symbolic_shapes", "torch._subclasses.fake_tensor")
_here = threading.local()  # ``depth`` of exports that this thread is in


@contextmanager
def quiet() -> Iterator[None]:
    """Drop torch.export's warnings about its own use of torch; repeat other warnings at the end.

    At the end, so that one that the caller's filters make an error is not taken for a failure of the export.
    What an export logs and prints where it fails is dropped: its exception says it. It writes no stack trace
    for each node, which nothing here reads.
    """
    _mute()
    _here.depth = getattr(_here, "depth", 0) + 1
    try:
        with warnings.catch_warnings(record=True) as caught, _no_stack_traces():
            warnings.simplefilter("always")
            yield
    finally:
        _here.depth -= 1
    for text, category, file, line in {(str(w.message), w.category, w.filename, w.lineno): 0 for w in caught}:
        if not OWN.match(text):
            warnings.warn_explicit(text, category, file, line)


@cache
def _mute() -> None:
    """Have torch.export print and log nothing in threads that are `quiet`."""
    from torch.export import _trace

    def said(*args: Any, **kwargs: Any) -> None:
        if not getattr(_here, "depth", 0):
            builtins.print(*args, **kwargs)

    _trace.print = said  # type: ignore[attr-defined]
    for name in LOGS:
        logging.getLogger(name).addFilter(lambda record: not getattr(_here, "depth", 0))


@contextmanager
def _no_stack_traces() -> Iterator[None]:
    from torch.fx import config

    before = getattr(config, "do_not_emit_stack_traces", None)
    if before is None:  # a torch that has no such switch
        yield
        return
    config.do_not_emit_stack_traces = True
    try:
        yield
    finally:
        config.do_not_emit_stack_traces = before
