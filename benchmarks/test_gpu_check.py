"""``python -m benchmarks.gpu --check``, in processes that have the simulator, or the compiler."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[1]
#: A GPU made of Python: launches, graphs and all.
FAKE = f"""
import sys
sys.path.insert(0, {str(ROOT / "tests")!r})
from support.fake_gpu import FakeApi, FakeGpu
from bslite.engines.cuda import engine
api = FakeApi()
gpu = FakeGpu(api)
engine.driver_for = lambda device=0: gpu
"""
RUN = """
from benchmarks.gpu import check
raise SystemExit(check.run(check.layers(1, ("relu", "max_pool2d", "lstm"))))
"""


def run(script: str, code: int = 0, simulator: bool = True, **settings: str) -> str:
    """What it prints."""
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_ENABLE_CUDASIM"}
    environment |= {"NUMBA_ENABLE_CUDASIM": "1"} if simulator else {"CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment | settings, cwd=ROOT
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_all_layers() -> None:
    said = run(FAKE + RUN).splitlines()
    assert said[-1] == "all layers work"
    assert len(said) == 11
    assert any("launches in graphs, the same bits each time" in line for line in said)
    assert any("2 cases of 2 ops" in line for line in said)
    assert any("4 runs of 4 units, 3 steps" in line for line in said)


@pytest.mark.parametrize(
    ("fault", "layer", "why"),
    [
        ("api.fail['cuMemsetD8Async'] = [OSError('lost')]", " 3/10 memory",
         "OSError: lost"),
        ("api.fail['cuLaunchKernel'] = [RuntimeError('no such kernel')]", " 5/10 smallest kernel",
         "RuntimeError: no such kernel"),
    ],
)  # fmt: skip
def test_the_first_layer_that_fails(fault: str, layer: str, why: str) -> None:
    """Is named, with where to look; those above it are not tried."""
    said = run(FAKE + fault + RUN, code=1)
    assert f"{layer}: FAILED: {why}" in said
    assert "look at: engines/cuda/gpu" in said
    assert said.splitlines()[-1] == "   the layers before it work; those after it were not tried"


def test_what_takes_long_is_named() -> None:
    fault = """
import time
from benchmarks.gpu import check
check.SLOW, check.watched.__wrapped__.__defaults__ = 0.05, (0.05,)
simply = check.on_device
check.on_device = lambda spec, given: (time.sleep(0.5 * (spec.name == "max_pool2d")), simply(spec, given))[1]
"""
    said = run(FAKE + fault + RUN)
    assert "   op 'max_pool2d', case '" in said
    assert "': no answer for 0 s; a kernel may hang" in said


def test_a_wrong_answer() -> None:
    """The op and its case are named."""
    fault = """
from bslite import api as bslite_api
right = bslite_api.run
def wrong(spec, *given, **more):
    y = right(spec, *given, **more)
    return y + (spec.name == "max_pool2d" and more.get("backend") == "cuda")
bslite_api.run = wrong
"""
    said = run(FAKE + fault + RUN, code=1)
    assert " 6/10 kernels: FAILED: Wrong: op 'max_pool2d', case '" in said


def test_no_device() -> None:
    pytest.importorskip("numba_cuda")
    assert " 2/10 device: FAILED: EngineError: backend 'cuda': there is no CUDA device" in run(
        RUN, code=2, simulator=False
    )


def test_kernels_compiled_ahead(tmp_path: Path) -> None:
    """In processes of their own; they lie where the engine looks for them."""
    pytest.importorskip("cuda.bindings.nvjitlink", reason="numba-cuda is not installed")
    script = tmp_path / "script.py"  # processes that are spawned import it
    script.write_text("""
if __name__ == "__main__":
    from benchmarks.gpu.ahead import Compilers, wanted_by
    from bslite import GraphBuilder
    from bslite.explore.gpu import GpuMachine
    graph = GraphBuilder("relu")
    spec = graph.build(graph.add("relu", "r", graph.input("x", (8,))))
    compilers = Compilers((9, 0))
    wanted = wanted_by(spec, [(8,)], GpuMachine())
    print(compilers.compile(wanted), compilers.compile(wanted))
    compilers.close()
""")
    said = run(
        f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')",
        simulator=False, BSLITE_CACHE_DIR=str(tmp_path), PYTHONPATH=str(ROOT),
    )  # fmt: skip
    assert said == "1 0\n"
    assert len(list(tmp_path.glob("cuda/*/*.cubin"))) == 1
