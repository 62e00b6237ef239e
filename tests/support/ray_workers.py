"""What tests have run in workers of Ray."""

import os
import time
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
    """Stops in its first batch on the ``doomed`` node until that is gone."""

    def __init__(self, doomed: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.doomed = doomed

    def __call__(self, batch: Any) -> Any:
        made = super().__call__(batch)
        if self.node == self.doomed:
            time.sleep(300)
        return made


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
