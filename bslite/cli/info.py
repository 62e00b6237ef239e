"""``bslite info``: this installation and this machine, and what a start costs."""

import importlib.metadata
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from bslite.cli import options
from bslite.cli.inputs import make_inputs
from bslite.cli.progress import activity
from bslite.errors import EngineError, InputError
from bslite.spec.open import behind

OPTIONAL = ("torch", "numba-cuda", "torchvision", "onnx", "onnxruntime", "openvino", "pillow")

#: Run in a fresh interpreter: prints seconds to import bslite, and to ResNet-50's first answer.
_FIRST_ANSWER = """
import sys, time
start = time.perf_counter()
import bslite
imported = time.perf_counter() - start
import numpy
spec = bslite.load(sys.argv[1])
y = bslite.run(spec, numpy.ones((1, 3, 224, 224), numpy.float32))
assert numpy.isfinite(y).all()
print(imported, time.perf_counter() - start)
"""


def info(
    model: options.ModelFile = None,
    timings: Annotated[
        bool, typer.Option("--timings", help="Also time `import bslite` and a first answer.")
    ] = False,
) -> None:
    """Versions, the machine as bslite sees it, and where compiled kernels are kept.

    Of a MODEL: what it takes and gives, and in how many pieces it runs, with the reasons.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(show_header=False, box=None, padding=(0, 2))
    with activity("Looking around"):
        rows = {**_software(), **_machine()} if model is None else _model(model)
    for title, value in rows.items():
        table.add_row(title, escape(value))  # values may have [extras] in them
    if timings:
        with activity("Starting fresh processes"):
            imported, answered = first_answer()
        table.add_row("import bslite", f"{imported:.2f} s")
        table.add_row("to first answer", f"{answered:.2f} s, ResNet-50 from a file, kernels on disk")
    Console(highlight=False, soft_wrap=True).print(table)


def _model(path: Path) -> dict[str, str]:
    """What is known of a model in a file; to see in which pieces it runs, it is run on random numbers."""
    from bslite.compiled import compile

    made = compile(options.load_model(path, None))
    rows = {"model": made.name}
    rows |= {f"input {n}": str(p) for n, p in enumerate(made.inputs)}
    rows |= {f"output {n}": str(p) for n, p in enumerate(made.outputs)}
    try:
        inputs = make_inputs(behind(made), None, None, None, 0)
        made(*inputs)
        rows["tried with"] = " ".join(str(list(x.shape)) for x in inputs)
    except InputError as e:
        rows["tried with"] = f"nothing that it takes: {e}"
    return rows | {f"piece {n}": line for n, line in enumerate(made.pieces, 1)}


def first_answer(runs: int = 3) -> tuple[float, float]:
    """Seconds to import bslite, and from before that to ResNet-50's first answer, in a fresh process.

    The least of ``runs``, after one that fills the caches.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "resnet50.safetensors"
        options.named_architecture("resnet50").save(path)
        measured = [_fresh(path) for _ in range(runs + 1)][1:]
    return min(m[0] for m in measured), min(m[1] for m in measured)


def _fresh(path: Path) -> tuple[float, float]:
    command = [sys.executable, "-c", _FIRST_ANSWER, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EngineError(f"the timed process failed:\n{done.stderr}")
    imported, answered = map(float, done.stdout.split())
    return imported, answered


def _software() -> dict[str, str]:
    here = {name: _version(name) for name in ("bslite", "numpy", "numba", "llvmlite", "safetensors")}
    rows = {"bslite": f"{here.pop('bslite')}, Python {platform.python_version()}, {platform.platform()}"}
    rows["built on"] = ", ".join(f"{name} {version}" for name, version in here.items())
    rows["optional"] = ", ".join(f"{name} {_version(name) or '-'}" for name in OPTIONAL)
    return rows


def _machine() -> dict[str, str]:
    from bslite.engines.cpu.threads import available_cores, decided
    from bslite.kernels.cpu.runtime.cache import kernels_dir, of_these_sources
    from bslite.kernels.cpu.vector.target import simd

    lanes, registers, cpu, _ = simd()
    folder, digests = kernels_dir(), of_these_sources()
    kept = [file.parent.name in digests for file in folder.glob("*/*.nbi")]
    ours, others = sum(kept), len(kept) - sum(kept)
    stale = f", {others} of other versions" if others else ""
    return {
        "processor": f"{cpu}, {available_cores()} of {os.cpu_count()} cores available",
        "vectors": f"{lanes} float32 lanes, {registers} registers",
        "threads": decided(),
        "measured": _measured(),
        "tiles of bfloat16": _tiles(),
        "bfloat16 dot products": _dots(),
        "kernels on disk": f"{ours} in {folder}{stale}",
        "GPU": _gpu(),
    }


def _gpu() -> str:
    """The GPU the backend "cuda" would run on, or why there is none."""
    from bslite.engines.cuda.devices import driver_for

    try:
        driver = driver_for()
    except EngineError as e:
        return "none: " + str(e).removeprefix("backend 'cuda'").lstrip(": ")
    machine, (free, total) = driver.machine, driver.room()
    memory = f", {free / 2**30:.1f} of {total / 2**30:.1f} GB free" if total else ""
    return f"{driver.name}, {machine.sms} SMs at {machine.clock / 1e9:.2f} GHz{memory}"


def _measured() -> str:
    """The rates of all cores by the stored calibration, or that there is none."""
    from bslite.engines.cpu import calibration

    found = calibration.load()
    if found is None:
        return "not yet; bslite calibrate does it in seconds"
    rates = found.all
    return (
        f"{found.date[:10]}, {found.cores} core(s): {rates.clock / 1e9:.1f} GHz, "
        f"{rates.flops / 1e9:.0f} GFLOP/s; reading L2 {rates.l2_read / 1e9:.0f}, "
        f"L3 {rates.l3_read / 1e9:.0f}, memory {rates.memory_read / 1e9:.0f} GB/s"
    )


def _tiles() -> str:
    """Whether there is a unit for them (AMX), and whether plans use it."""
    from bslite.engines.cpu import calibration, unit
    from bslite.kernels.cpu.vector.target import has_tiles

    if not has_tiles():
        return "no unit for them here (AMX)"
    if not unit.trusted():
        return f"a unit (AMX), not used: turned off ({unit.OFF}=0), or its products are wrong"
    found = calibration.kept()
    rate = (
        f"{found.all.tile_flops / 1e9:,.0f} GFLOP/s"
        if found and found.all.tiles
        else "a unit (AMX), not measured"
    )
    return f"{rate}; six products for each of float32 by default"


def _dots() -> str:
    """Whether plans use instructions for dot products of bfloat16."""
    from bslite.engines.cpu.detect import detect
    from bslite.kernels.cpu.vector.target import has_bfloat16_dots

    if not has_bfloat16_dots():
        return "no instruction for them here (AVX512_BF16)"
    if not detect(1).dot_cycles:
        return "AVX512_BF16, not used: not measured (bslite calibrate), or no faster than multiply-adds"
    return 'AVX512_BF16, which precision="bfloat16" takes'


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
