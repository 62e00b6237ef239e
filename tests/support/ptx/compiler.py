"""PTX of kernels, for tests whose own process has numba.cuda's simulator in place of its compiler.

Run as a program it is the other end: a line of JSON in, kernel and variant, a line of JSON out, the PTX.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bslite import cache
from support.ptx.text import Program, program

CAPABILITY = (9, 0)
#: Compilers beside the tests.
PROCESSES = min(4, os.cpu_count() or 1)
_local = threading.local()
_processes: list[subprocess.Popen[str]] = []
_asked: dict[tuple[str, str], Future[str]] = {}


def program_of(kernel: str, variant: Mapping[str, Any]) -> Program:
    """A kernel's variant, compiled once and kept on disk under a digest of the kernel's sources."""
    return _program(kernel, _key(variant))


def ask(wanted: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """Have these compiled meanwhile; (kernel, variant) each."""
    for kernel, variant in wanted:
        _future(kernel, _key(variant))


def stop() -> None:
    """Compile nothing more; the compilers end."""
    if _asked:
        _pool().shutdown(cancel_futures=True)
    while _processes:
        _processes.pop().communicate()


def _key(variant: Mapping[str, Any]) -> str:
    return json.dumps(variant, sort_keys=True)


@functools.cache
def _program(kernel: str, variant: str) -> Program:
    return program(_future(kernel, variant).result())


def _future(kernel: str, variant: str) -> Future[str]:
    if (kernel, variant) not in _asked:
        _asked[kernel, variant] = _pool().submit(_text, kernel, variant)
    return _asked[kernel, variant]


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(PROCESSES)


def _text(kernel: str, variant: str) -> str:
    from bslite.kernels.cuda.runtime.compile import fingerprint

    which = hashlib.sha256(f"{CAPABILITY} {variant}".encode()).hexdigest()[:24]
    file = cache.cache_dir() / "tests" / fingerprint(kernel) / f"{kernel}-{which}.ptx"
    if file.exists():
        return file.read_text()
    if not hasattr(_local, "process"):
        _local.process = _process()
        _processes.append(_local.process)
    process = _local.process
    process.stdin.write(json.dumps([kernel, variant]) + "\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        raise RuntimeError(f"no PTX for {kernel} {variant}: the compiling process ended")
    text = str(json.loads(answer))
    cache.write(file, text)
    return text


def _process() -> subprocess.Popen[str]:
    """A compiler; it ends when its input does, with this process."""
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_ENABLE_CUDASIM"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    command = [sys.executable, "-m", "support.ptx.compiler"]
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _serve() -> None:
    from bslite.kernels.cuda import KERNELS

    os.nice(10)  # who is beside it goes first
    for line in sys.stdin:
        kernel, variant = json.loads(line)
        constants = {k: _tuples(v) for k, v in json.loads(variant).items()}
        print(json.dumps(KERNELS[kernel].ptx(CAPABILITY, **constants)), flush=True)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


if __name__ == "__main__":
    _serve()
