"""Memory: what bslite's plan keeps between the layers, and what a process really takes, measured apart.

Resident memory is measured in a process of its own for each case (`apart`), because what one rival has
allocated and freed the next would find ready. ``ru_maxrss`` will not do: a child begins with its parent's.
The kernel's own high-water mark of resident pages can be set back, so it is read (Linux; elsewhere
`Unmeasurable`).
"""

import ctypes
import gc
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.origin import ROOT
from bslite.spec import Array, ModelSpec

STATUS, MARKS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # written to clear_refs; see proc(5)


class Unmeasurable(Exception):
    """Memory cannot be measured here; the message says why."""


def between_layers(spec: ModelSpec, x: Array, threads: int, layerwise: bool) -> int:
    """Bytes the plan keeps between layers: the arena, and each thread's own. Packs the weights."""
    from bslite.engines.cpu import prepare

    plan = prepare(spec, [x], threads, layerwise).plan
    return 4 * (plan.arena_size + plan.threads * plan.scratch_size)


class Growth:
    """Growth of this process's resident memory, in bytes, from when this object was made."""

    def __init__(self) -> None:
        self.start = 0
        self.restart_peak()
        self.start = _resident("VmRSS")

    def now(self) -> int:
        """What is resident now beyond what was at the start."""
        return _resident("VmRSS") - self.start

    def peak(self) -> int:
        """The most that was resident since the start or the last `restart_peak`, beyond the start."""
        return _resident("VmHWM") - self.start

    def restart_peak(self) -> None:
        """Give the system back what is free, and watch from here for the peak."""
        gc.collect()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's; it would count free memory as used
        if trim is not None:
            trim(0)
        try:
            MARKS.write_text(RESET_PEAK)
        except OSError as e:
            raise Unmeasurable(f"the peak of resident memory cannot be read here: {e}") from e


def apart(module: str, case: dict[str, Any]) -> dict[str, int]:
    """The result of ``measure(**case)`` of ``module`` in a fresh process: bytes by name.

    Raises Unmeasurable with the last line the process wrote if it fails.
    """
    command = [sys.executable, "-m", "benchmarks.memory", module, json.dumps(case)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise Unmeasurable(last[:200])
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def _resident(key: str) -> int:
    for line in STATUS.read_text().splitlines():
        if line.startswith(f"{key}:"):
            return 1024 * int(line.split()[1])
    raise Unmeasurable(f"{STATUS} has no {key}")


if __name__ == "__main__":
    print(json.dumps(importlib.import_module(sys.argv[1]).measure(**json.loads(sys.argv[2]))))
