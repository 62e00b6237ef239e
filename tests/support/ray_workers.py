"""What tests have run in workers of Ray."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import bslite
import bslite.ray


class Noted(bslite.ray.Predictor):
    """Notes in ``log`` when it opens the model and begins a batch; adds what a worker knows of itself."""

    def __init__(self, log: Path, *args: Any, **kwargs: Any) -> None:
        import ray

        self.log, self.node = log, ray.get_runtime_context().get_node_id()
        self.note("open")
        super().__init__(*args, **kwargs)

    def note(self, *words: Any) -> None:
        with self.log.open("a") as file:  # one write, which other processes' do not cut
            file.write(" ".join(map(str, (os.getpid(), self.node, *words))) + "\n")

    def __call__(self, batch: Any) -> Any:
        self.note("batch", *batch["id"])
        made = super().__call__(batch)
        spec = self.model._bslite_model
        shared = all(in_the_store(p) for p in spec.params.values() if p.nbytes > 1 << 20)
        count = len(batch["id"])
        return {**made, "threads": np.full(count, threads_in()), "shared": np.full(count, shared)}


class Held(Noted):
    """Stops in its first batch on the ``doomed`` node until that is gone; elsewhere waits for that batch."""

    def __init__(self, doomed: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.doomed = doomed

    def __call__(self, batch: Any) -> Any:
        made = super().__call__(batch)
        if self.node == self.doomed:
            time.sleep(300)
        wait_for(lambda: begun(self.log, self.doomed))
        return made


def wait_for(ready: Callable[[], Any]) -> None:
    until = time.monotonic() + 100
    while not ready():
        assert time.monotonic() < until, "what is waited for does not come"
        time.sleep(0.02)


def entries(log: Path) -> list[list[str]]:
    """What workers noted: process, node, what they did."""
    return [line.split() for line in log.read_text().splitlines()] if log.exists() else []


def begun(log: Path, node: str) -> list[str]:
    """The numbers of the rows in batches that were begun on a node."""
    return [row for entry in entries(log) if entry[1:3] == [node, "batch"] for row in entry[3:]]


def in_the_store(array: Any) -> bool:
    """Whether an array's memory is Ray's object store, mapped."""
    address = array.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(n, 16) for n in line.split()[0].split("-"))
        if begin <= address < end:
            return "plasma" in line or "/dev/shm" in line
    return False


def threads_in() -> int:
    """The threads of a model in this process."""
    from bslite.engines.cpu.threads import default_threads

    return default_threads()


class Counted(bslite.ModelSpec):
    """A model that counts how often it is sent somewhere."""

    sent = 0

    def __reduce__(self) -> Any:
        Counted.sent += 1
        return bslite.ModelSpec, super().__reduce__()[1]


def predicted(model: list[Any], batch: dict[str, Any]) -> dict[str, Any]:
    """What a worker makes of a batch; a reference within a list reaches it as one."""
    return bslite.ray.Predictor(model[0])(batch)
