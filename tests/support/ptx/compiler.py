"""PTX of kernels, for tests whose own process has numba.cuda's simulator in place of its compiler.

Run as a program, with a compute capability, it is the other end: a line of JSON in, kernel and variant, a
line of JSON out, the PTX.
"""

from __future__ import annotations

import atexit
import functools
import gc
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bslite import cache
from support.once import once
from support.ptx.text import Program, program

CAPABILITY = (9, 0)


def program_of(kernel: str, variant: Mapping[str, Any]) -> Program:
    """A kernel's variant, to be run."""
    return _program(kernel, json.dumps(variant, sort_keys=True))


def text_of(kernel: str, variant: Mapping[str, Any], capability: tuple[int, int] = CAPABILITY) -> str:
    """A kernel's variant for GPUs of a capability, kept on disk under a digest of its sources."""
    return _text(kernel, json.dumps(variant, sort_keys=True), capability)


@functools.cache
def _program(kernel: str, variant: str) -> Program:
    return program(_text(kernel, variant, CAPABILITY))


def _text(kernel: str, variant: str, capability: tuple[int, int]) -> str:
    from bslite.kernels.cuda.runtime.compile import fingerprint

    which = hashlib.sha256(f"{capability} {variant}".encode()).hexdigest()[:24]
    file = cache.cache_dir() / "tests" / fingerprint(kernel) / f"{kernel}-{which}.ptx"
    if not file.exists():
        with once(file.name):
            if not file.exists():
                cache.write(file, _compiled(kernel, variant, capability))
    return file.read_text()


def _compiled(kernel: str, variant: str, capability: tuple[int, int]) -> str:
    process = _process(capability)
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps([kernel, variant]) + "\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        raise RuntimeError(f"no PTX for {kernel} {variant}: the compiling process ended")
    return str(json.loads(answer))


@functools.cache
def _process(capability: tuple[int, int]) -> subprocess.Popen[str]:
    """The compiler of this process; it ends when its input does, with this process.

    It compiles for one capability only, as `compile_ptx` must.
    """
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_ENABLE_CUDASIM"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    command = [sys.executable, "-m", "support.ptx.compiler", *map(str, capability)]
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(process.communicate)
    return process


def _serve() -> None:
    from bslite.kernels.cuda import KERNELS

    gc.freeze()
    gc.set_threshold(100_000, 50, 100)  # a compiler makes many small objects, and keeps most of them
    major, minor = map(int, sys.argv[1:])
    for line in sys.stdin:
        kernel, variant = json.loads(line)
        constants = {k: _tuples(v) for k, v in json.loads(variant).items()}
        print(json.dumps(KERNELS[kernel].ptx((major, minor), **constants)), flush=True)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


if __name__ == "__main__":
    _serve()
