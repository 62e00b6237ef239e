"""PTX of kernels, for tests whose own process has numba.cuda's simulator in place of its compiler.

Run as a program, it is the other end: a line of JSON in, kernel and variant, a line of JSON out, the PTX for
GPUs of each compute capability that has been made.
"""

import atexit
import functools
import gc
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bslite import cache
from bslite.engines.cuda.program import constants_of
from support.once import once
from support.ptx.text import Program, program

CAPABILITY = (9, 0)  # that of the PTX that is run
SAMPLED = ((8, 0), (9, 0))  # those of a kernel's samples


def program_of(kernel: str, variant: Mapping[str, Any]) -> Program:
    """A kernel's variant, to be run."""
    return _program(kernel, _named(variant))


def text_of(kernel: str, variant: Mapping[str, Any], capability: tuple[int, int] = CAPABILITY) -> str:
    """A kernel's variant for GPUs of a capability, kept on disk under a digest of its sources."""
    return _text(kernel, _named(variant), capability)


def _named(variant: Mapping[str, Any]) -> str:
    """A variant as the engine launches it: samples name activations, of which it knows the codes."""
    return json.dumps({name: constants_of(value) for name, value in variant.items()}, sort_keys=True)


@functools.cache
def _program(kernel: str, variant: str) -> Program:
    return program(_text(kernel, variant, CAPABILITY))


def _text(kernel: str, variant: str, capability: tuple[int, int]) -> str:
    from bslite.kernels.cuda.runtime.compile import fingerprint

    which = hashlib.sha256(variant.encode()).hexdigest()[:24]
    folder = cache.cache_dir() / "tests" / fingerprint(kernel)

    def file(capability: Sequence[int]) -> Path:
        return folder / "{}-{}-sm_{}{}.ptx".format(kernel, which, *capability)

    wanted = file(capability)
    if not wanted.exists():
        with once(f"{kernel}-{which}"):
            if not wanted.exists():
                for made, text in _compiled(kernel, variant):
                    cache.write(file(made), text)
    return wanted.read_text()


def _compiled(kernel: str, variant: str) -> list[tuple[list[int], str]]:
    """Capabilities, and the PTX for each."""
    process = _process()
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps([kernel, variant]) + "\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        raise RuntimeError(f"no PTX for {kernel} {variant}: the compiling process ended")
    return list(json.loads(answer))


@functools.cache
def _process() -> subprocess.Popen[str]:
    """The compiler of this process; it ends when its input does, with this process."""
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_ENABLE_CUDASIM"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    command = [sys.executable, "-m", "support.ptx.compiler"]
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(process.communicate)
    return process


def _serve() -> None:
    """Most of the work is numba-cuda's, from Python to LLVM's code, which is the same for all capabilities;
    NVVM, which makes PTX of that, is asked once for each.
    """
    from numba.cuda.codegen import CUDACodeLibrary

    from bslite.kernels.cuda import KERNELS

    gc.freeze()
    gc.set_threshold(100_000, 50, 100)  # a compiler makes many small objects, and keeps most of them
    libraries: list[CUDACodeLibrary] = []
    ptx_of = CUDACodeLibrary.get_asm_strs

    def remembered(library: CUDACodeLibrary, cc: tuple[int, int]) -> list[str]:
        libraries.append(library)
        return list(ptx_of(library, cc))

    CUDACodeLibrary.get_asm_strs = remembered
    for line in sys.stdin:
        name, variant = json.loads(line)
        constants = {k: constants_of(v) for k, v in json.loads(variant).items()}
        kernel = KERNELS[name]
        made = {CAPABILITY: kernel.ptx(CAPABILITY, **constants)}
        library = libraries.pop()
        if variant in map(_named, kernel.samples):
            made |= {c: "".join(ptx_of(library, c)) for c in SAMPLED if c >= kernel.since}
        print(json.dumps(list(made.items())), flush=True)


if __name__ == "__main__":
    _serve()
