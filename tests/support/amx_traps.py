"""A pytest plugin: kernels are compiled for AMX, whose instructions a handler of signals carries out.

``pytest -p support.amx_traps``: on a processor without AMX, every test runs the machine code that one with
AMX runs.
"""

import ctypes
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

features = [f for f in llvm.get_host_cpu_features().flatten().split(",") if "amx" not in f]
# Both are read by Numba when it is first imported.
os.environ["NUMBA_CPU_NAME"] = llvm.get_host_cpu_name()
os.environ["NUMBA_CPU_FEATURES"] = ",".join([*features, "+amx-tile", "+amx-bf16"])

COMPILER = ("cc", "-O2", "-ffp-contract=off", "-mavx2", "-mfma", "-shared", "-fPIC")
KINDS = ("configure", "release", "zero", "load", "store", "product")


def _compiled() -> ctypes.CDLL:
    """The handler."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "amx_traps.so"
        source = Path(__file__).with_suffix(".c")
        subprocess.run([*COMPILER, str(source), "-o", str(library), "-lm"], check=True)
        handler = ctypes.CDLL(str(library))
    return handler


def counts() -> dict[str, int]:
    """How many instructions of each kind were carried out so far."""
    return dict(zip(KINDS, (ctypes.c_uint64 * len(KINDS)).in_dll(_handler, "amx_counts"), strict=True))


_handler = _compiled()

from bslite.kernels.cpu.runtime import cache  # noqa: E402  (Numba is imported now)
from bslite.kernels.cpu.tiles import unit  # noqa: E402
from bslite.kernels.cpu.vector import target  # noqa: E402

for module in (target, unit, cache):
    module.has_tiles = lambda: True  # type: ignore[attr-defined]  # no system permits what a processor lacks


def pytest_sessionstart() -> None:
    """Installs the handler, after pytest has installed its own for crashes."""
    if _handler.amx_install():
        raise OSError("the handler of SIGILL cannot be installed")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Says it in the last lines."""
    terminalreporter.write_line(f"carried out: {counts()}")
