"""The engine through numba-cuda and NVIDIA's bindings down to C, where a driver that computes nothing logs
what it is called with: kernels are compiled, loaded, and started with the arguments that C sees.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.process import python

from bslite import cache

COMPILER = shutil.which("cc") or shutil.which("gcc")
pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not COMPILER or sys.platform != "linux", reason="no C compiler"),
]

MODEL = """
import numpy as np, bslite
graph = bslite.GraphBuilder("net")
x = graph.input("x", (2, 8, 2, 2))
y = graph.add("flatten", "f", graph.add("relu", "a", x), start_axis=1)
spec = graph.build(graph.add("tanh", "t", graph.add("concat", "c", y, y, axis=1)))
x = np.full((2, 8, 2, 2), 0.75, np.float32)
"""


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the driver library."""
    pytest.importorskip("cuda.bindings.nvjitlink", reason="numba-cuda is not installed")
    folder = tmp_path_factory.mktemp("stub")
    source = Path(__file__).parents[1] / "support" / "stub_libcuda.c"
    command = [str(COMPILER), "-shared", "-fPIC", "-D_GNU_SOURCE", "-w", str(source), "-ldl", "-o"]
    subprocess.run([*command, str(folder / "libcuda.so.1")], check=True)
    (folder / "libcuda.so").symlink_to("libcuda.so.1")
    return folder


def run(stub: Path, script: str, **settings: str) -> tuple[list[str], list[str]]:
    """Lines that the script prints, and lines that the driver logs."""
    hidden: dict[str, Any] = {"NUMBA_ENABLE_CUDASIM": None, "CUDA_VISIBLE_DEVICES": None}
    places = {"LD_LIBRARY_PATH": str(stub), "BSLITE_CACHE_DIR": str(stub / "cache")}
    done = python(MODEL + script, **(hidden | places | settings))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr.splitlines()


def test_what_the_driver_sees(stub: Path) -> None:
    """Arguments as C reads them; the second run captures, the third starts the graph."""
    _, log = run(stub, 'for i in range(3): bslite.run(spec, x + i, backend="cuda")')
    assert "stream 1" in log  # it waits for nothing on the default stream
    assert "module 1" in log
    assert "function _ZN6bs" in log
    launches = [line for line in log if line.startswith("launch")]
    for line in launches:
        shape = r"launch grid \d+ 1 1 block 256 1 1 shared 0 extra 0 array 0 \d+ 1 bytes [48] first"
        assert re.match(shape, line)
    # The first kernel reads what the host gave in each run.
    assert [line.split()[-1] for line in launches if line.split()[-1] in ("0.75", "1.75", "2.75")] == [
        "0.75", "1.75", "2.75"
    ]  # fmt: skip
    assert [line for line in log if line.startswith(("up", "capture", "graph"))] == [
        "up 256 0.75", "up 256 1.75", "capture 2", "captured", "graph", "up 256 2.75", "graph"
    ]  # fmt: skip


def test_blocks_that_wait_for_each_other(stub: Path) -> None:
    """Launched together, with more shared memory than 48 KB; more blocks than have room are an error."""
    script = """
from bslite.engines.cuda.devices import driver_for
from bslite.engines.cuda.driver import Cells
from bslite.kernels.contracts.launch import F4, LaunchRecord, LaunchVariant
from bslite.kernels.cuda.runtime.device import cuda
from bslite.kernels.cuda.runtime.kernel import kernel

class Variant(LaunchVariant):
    together: int

class Tiny(LaunchRecord):
    kernel = "tiny"
    x: F4

@kernel(Tiny, threads=64, registers=32, samples=[Variant(1)], dynamic=lambda variant: 53248)
def tiny(together):
    def tiny(x):
        shared = cuda.shared.array(0, np.float32)
        shared[cuda.threadIdx.x] = x[0]
    return tiny

driver = driver_for()
memory = driver.allocate(4096, 0)
arguments = tiny.arguments({"x": Cells(memory.address, np.float32, 64)})
function = driver.function("tiny", {"together": 1})
with driver.here():
    driver.bind(function, (132, 1), (64,), arguments).start(driver.stream())
try:
    driver.bind(function, (133, 1), (64,), arguments)
except bslite.EngineError as e:
    print(e)
"""
    (said,), log = run(stub, script)
    room = "room for 64 threads 53248 bytes"
    assert [line for line in log if line.startswith(("attribute", "room", "together"))] == [
        "attribute 8 53248", room, "together grid 132 1 1 block 64 1 1 shared 53248 first 64", room
    ]  # fmt: skip
    assert "133 blocks of 64 threads and 53248 bytes of shared memory wait for each other, 132 have" in said


def test_a_recurrent_layer(stub: Path) -> None:
    """A recurrent layer that stays on the GPU is launched cooperatively; flags are cleared on the device."""
    script = """
graph = bslite.GraphBuilder("rnn")
a, n = graph.input("a", (5, 1, 64)), graph.input("n", (1,), dtype="int32")
rng = np.random.default_rng(0)
graph.params |= {name: rng.standard_normal((256, 64), np.float32) for name in "wu"}
spec = graph.build(graph.add("lstm", "l", a, n, params={"weight_ih": "w", "weight_hh": "u"}, lengths=True))
for _ in range(2):
    bslite.run(spec, [rng.standard_normal((5, 1, 64), np.float32), np.array([5], np.int32)], backend="cuda")
"""
    _, log = run(stub, script)
    together = [line for line in log if line.startswith("together")]
    assert together
    for line in together:
        assert re.match(r"together grid \d+ 1 1 block \d+ 1 1 shared \d+ first", line)
    assert "clear 0 16" in log
    assert [line for line in log if line.startswith("mode")][:2] == ["mode 2", "mode 0"]


def test_a_kernel_by_itself(stub: Path) -> None:
    """How the kernels' tests launch on a GPU: by the engine's driver."""
    script = """
from support.gpu_simulate import launch
from bslite.kernels.cuda import KERNELS
kernel = KERNELS["whole_pool"]
given = {name: np.full(6, 0.25, np.float32) for name in kernel.arrays}
given |= dict.fromkeys(kernel.scalars, 1)
print(launch(kernel, (1,), (256,), given, **kernel.samples[0])["x"])
"""
    said, log = run(stub, script)
    assert said == ["[0.25 0.25 0.25 0.25 0.25 0.25]"]
    assert {line for line in log if line.startswith(("up", "down"))} == {"up 24 0.25", "down 24"}
    assert any(line.startswith("launch grid 1 1 1 block 256") for line in log)


def test_kernels_are_loaded_from_disk(stub: Path) -> None:
    """A second process compiles nothing."""
    once = 'bslite.run(spec, x, backend="cuda")\n'
    run(stub, once)
    forbid = """
from bslite.kernels.cuda.runtime.kernel import Kernel
def ptx(*_, **__): raise SystemExit("compiled again")
Kernel.ptx = ptx
"""
    _, log = run(stub, forbid + once)
    assert "module 1" in log


def test_the_device(stub: Path) -> None:
    script = """
from bslite.engines.cuda.devices import driver_for
driver = driver_for()
print(driver.name, driver.machine.sms, driver.machine.block_threads, *driver.room())
event = driver.event()
driver.record(event, driver.stream())
print(driver.passed(event), driver.seconds(lambda stream: None, 2))
"""
    said, _ = run(stub, script, STUB_MEMORY="4096")
    assert said == ["cuda:0 (Stub) 132 1024 4096 4096", "True [0.0015, 0.0015]"]
    said, _ = run(stub, script, STUB_EVENT="600")
    assert said[1].startswith("False")


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"STUB_INIT": "100"}, r"backend 'cuda': there is no CUDA device here \(.*CUDA_ERROR_NO_DEVICE"),
        (
            {"STUB_VERSION": "12040"},
            r"the NVIDIA driver supports CUDA 12\.4, .* of CUDA 13; update the driver",
        ),
        ({"STUB_DEVICES": "0"}, "there is no device cuda:0; this machine has 0"),
        ({"STUB_MEMORY": "1024"}, r"cuda:0 \(Stub\): 0\.0 MB wanted for .*, 0\.0 MB of 0 MB free"),
    ],
)
def test_errors(stub: Path, settings: dict[str, str], error: str) -> None:
    """One EngineError each; the process goes on, on the CPU."""
    script = """
try:
    bslite.run(spec, x, backend="cuda")
except bslite.EngineError as e:
    print(e)
print(bslite.run(spec, x).shape)
"""
    *said, last = run(stub, script, **settings, BSLITE_CACHE_DIR=str(cache.cache_dir()))[0]
    assert last == "(2, 64)"
    assert re.search(error, "\n".join(said)), said
