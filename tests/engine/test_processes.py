"""What can only be seen in a process of its own: other vector widths, forks, read-only homes, torch's
absence.
"""

from pathlib import Path

import pytest
from support.process import printed

from bslite.kernels.cpu.vector.target import simd

pytestmark = pytest.mark.processes

#: A small network of every kind of kernel, run at 1 and 2 threads and compared with the float64 reference.
CHECK = """
import sys
import numpy as np
import bslite
from bslite import reference
from bslite.kernels.cpu.vector.target import simd
from support.graphs import network
{before}
x = np.random.default_rng(0).standard_normal((2, 3, 64, 70)).astype(np.float32)
for arch in {archs}:
    spec = network(arch)
    want = reference.run(spec, [x], np.float64)[0]
    peer = reference.run(spec, [x], np.float32)[0]
    got = bslite.run(spec, x, threads=1)
    assert bslite.run(spec, x, threads=2).tobytes() == got.tobytes()
    error = np.linalg.norm(got - want) / np.linalg.norm(want)
    assert error <= 4 * np.linalg.norm(peer - want) / np.linalg.norm(want), (arch, error)
{after}
print("lanes", simd().lanes, "torch", "torch" in sys.modules)
"""


def check(archs: list[str], before: str = "", after: str = "", **env: str) -> str:
    """Run CHECK and return the last line it printed."""
    return printed(CHECK.format(archs=archs, before=before, after=after), **env).splitlines()[-1]


NETS = ["resnet18", "mobilenet_v2", "densenet121"]


@pytest.mark.parametrize(("cpu", "lanes"), [("haswell", 8), ("x86-64", 4)])
def test_narrower_vectors(cpu: str, lanes: int) -> None:
    import platform

    if platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip("names of x86 processors")
    if simd().lanes == lanes:
        pytest.skip("this processor's own vectors: all other tests run with them")
    assert check(NETS, NUMBA_CPU_NAME=cpu, NUMBA_CPU_FEATURES="") == f"lanes {lanes} torch False"


def test_without_torch_and_with_torch_imported_before_and_after() -> None:
    assert check(["resnet18"]).endswith("torch False")
    pytest.importorskip("torch")
    assert check(["resnet18"], before="import torch; torch.ones(64, 64) @ torch.ones(64, 64)").endswith(
        "torch True"
    )
    again = "import torch; torch.set_num_threads(1); assert bslite.run(spec, x).tobytes() == got.tobytes()"
    assert check(["resnet18"], after=again).endswith("torch True")


def test_many_callers() -> None:
    callers = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    for answer in pool.map(lambda _: bslite.run(spec, x, threads=2).tobytes(), range(24)):
        assert answer == got.tobytes()
"""
    check(["resnet18"], after=callers)


def test_forked_children_answer() -> None:
    fork = """
import os, warnings
warnings.simplefilter("ignore")  # Python warns of forking with threads about; DataLoader workers do just that
child = os.fork()
if child == 0:
    os._exit(0 if bslite.run(spec, x, threads=2).tobytes() == got.tobytes() else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert bslite.run(spec, x, threads=2).tobytes() == got.tobytes()
"""
    check(["resnet18"], after=fork)


def test_a_cache_that_cannot_be_written_costs_a_warning_not_an_answer(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file where the directory should be")
    code = """
import warnings
import numpy as np
import bslite
from support.graphs import one_op
spec = one_op("relu", ("N", 4))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert bslite.run(spec, np.float32([[-1, 0, 1, 2]]), threads=1).tolist() == [[0, 0, 1, 2]]
told = [str(w.message) for w in caught if "BSLITE_CACHE_DIR" in str(w.message)]
assert len(told) == 1, told
"""
    printed(code, BSLITE_CACHE_DIR=str(blocked / "cache"))


def test_kernels_are_loaded_from_disk_the_second_time(tmp_path: Path) -> None:
    code = """
import numpy as np
import bslite
from bslite.kernels.cpu import compiled
from support.graphs import one_op
bslite.run(one_op("relu", ("N", 4)), np.zeros((1, 4), np.float32), threads=1)
print(len(compiled))
"""
    first, second = (printed(code, BSLITE_CACHE_DIR=str(tmp_path)).split() for _ in range(2))
    assert int(first[-1]) > 0
    assert int(second[-1]) == 0


@pytest.mark.parametrize("arch", ["resnet18", "mobilenet_v2", "googlenet"])
def test_another_batch_or_resolution_compiles_nothing(arch: str) -> None:
    """In a process of its own, which has no kernel but those that the first run compiled or loaded."""
    code = f"""
import numpy as np
import bslite
from bslite.kernels.cpu import on_ready
from support.graphs import network
ready = []
on_ready.append(lambda name, from_cache: ready.append(name))
spec = network({arch!r})
bslite.run(spec, np.zeros((1, 3, 224, 224), np.float32), threads=2)
first = list(ready)
assert "conv" in first and "walk" in first, first
for n, h, w in [(3, 224, 224), (1, 160, 192), (2, 97, 70), (4, 64, 64), (1, 41, 300), (17, 48, 48)]:
    bslite.run(spec, np.zeros((n, 3, h, w), np.float32), threads=2)
    channels_last = np.zeros((n, h, w, 3), np.float32).transpose(0, 3, 1, 2)
    bslite.run(spec, channels_last, threads=1)
assert ready == first, ready[len(first):]
"""
    printed(code)
