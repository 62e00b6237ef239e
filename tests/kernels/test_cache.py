"""The store of compiled kernels: what their digests depend on; old versions go, what is not ours stays."""

import ast
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from support.process import printed

from bslite import cache
from bslite.kernels import sources

CPU, CUDA = "bslite.kernels.cpu", "bslite.kernels.cuda"
KERNELS = Path(sources.__file__).parent
MODULES = sources.modules()


@pytest.fixture(params=["math/vecpow.py", "gemm/sweep.py", "windows/pool_run.py", "vector/target.py"])
def edited(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the CPU's kernels, of whose source this process has read an edited copy."""
    copy = tmp_path / "kernels"
    shutil.copytree(KERNELS, copy)
    with (copy / "cpu" / request.param).open("a") as file:
        file.write("\n# edited\n")
    monkeypatch.setattr(sources, "__file__", str(copy / "sources.py"))
    monkeypatch.setattr(sources, "_SOURCES", sources._read())
    monkeypatch.setattr(sources, "_digest", sources._digest.__wrapped__)
    monkeypatch.setattr(sources, "_imported", sources._imported.__wrapped__)
    return f"{CPU}." + str(request.param).removesuffix(".py").replace("/", ".")


BEFORE = {module: sources.digest([module]) for module in MODULES}


def dependents(module: str) -> set[str]:
    """All modules that import ``module``, directly or through others, as Python's parser sees them."""
    found = {module}
    while more := {m for m in MODULES if m not in found and parsed_imports(m) & found}:
        found |= more
    return found


def parsed_imports(module: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(sources._SOURCES[module])):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively, which the pattern does not see"
            found.add(str(node.module))
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found & set(MODULES)


def test_an_edit_changes_the_digests_of_what_imports_it_and_of_nothing_else(edited: str) -> None:
    changed = {module for module in MODULES if sources.digest([module]) != BEFORE[module]}
    assert changed == dependents(edited)
    assert f"{CPU}.moves.trilu" not in changed or edited.endswith("target")
    assert not any(module.startswith(CUDA) for module in changed)


def test_every_import_is_seen() -> None:
    """The pattern finds all that Python's parser finds, and all of it is among the sources."""
    for module in MODULES:
        found = sources.imports_of(sources._SOURCES[module])
        assert parsed_imports(module) <= found, module
        if module.startswith("bslite.kernels."):
            named = {name for name in found if name in MODULES or name.rpartition(".")[0] in MODULES}
            assert found == named, f"{module} imports what no digest holds"


def test_a_module_in_a_subfolder_is_in_the_digest_of_a_kernel() -> None:
    from bslite.kernels.cpu.gemm.sweep import gemm_sweep
    from bslite.kernels.cuda.gemm.gemm import gemm

    reached = sources.closure(sources.homes_of(gemm_sweep(2, 6).py_func))
    assert {f"{CPU}.gemm.sweep", f"{CPU}.gemm.tile", f"{CPU}.vector.simd"} <= reached
    assert f"{CPU}.windows.pool" not in reached
    reached = sources.closure(sources.homes_of(gemm.make))
    assert {f"{CUDA}.gemm.gemm", f"{CUDA}.gemm.tile", f"{CUDA}.math.libm"} <= reached
    assert f"{CUDA}.rows.softmax" not in reached


def test_functions_that_a_factory_was_given_count() -> None:
    from bslite.kernels.cpu.rows.reducers import REDUCERS

    def factory(function: object) -> object:
        def kernel() -> object:
            return function

        return kernel

    (home,) = sources.homes_of(factory(None))  # type: ignore[arg-type]
    assert home == __name__
    made = factory((next(iter(REDUCERS.values())), len))
    assert sources.homes_of(made) >= {__name__, f"{CPU}.rows.reducers"}  # type: ignore[arg-type]


def test_a_kernel_is_kept_under_its_digest(tmp_path: Path) -> None:
    """A second process finds it, even if another kernel was edited meanwhile; not if it was itself."""
    copy = tmp_path / "bslite"
    shutil.copytree(Path(cache.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(KERNELS, copy / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    script = """
import sys
from bslite.kernels.cpu.moves.trilu import trilu
from bslite.kernels.cpu.runtime.compile import compiled
assert trilu.address
print(*compiled)
"""
    environment = {**os.environ, "BSLITE_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}

    def compiled() -> str:
        command = [sys.executable, "-S", "-c", f"import sys; sys.path += {sys.path!r}\n{script}"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert compiled() == "trilu"
    assert compiled() == ""
    with (copy / "kernels" / "cpu" / "gemm" / "sweep.py").open("a") as file:
        file.write("\n# edited\n")
    assert compiled() == ""
    with (copy / "kernels" / "cpu" / "moves" / "trilu.py").open("a") as file:
        file.write("\n# edited\n")
    assert compiled() == "trilu"


def test_what_no_process_has_used_for_long_is_dropped_and_nothing_else(tmp_path: Path) -> None:
    long_ago = time.time() - (cache.KEEP_DAYS + 1) * 86400
    used, new = "1" * 16, "2" * 16
    now, gone, mine = time.time(), "0" * 16, "f" * 16
    for name, stamp in {gone: long_ago, used: long_ago, mine: now, "thesis": long_ago}.items():
        (tmp_path / name).mkdir(parents=True)
        os.utime(tmp_path / name, (stamp, stamp))
    assert cache.version_folder(tmp_path, used) == tmp_path / used
    assert cache.version_folder(tmp_path, new) == tmp_path / new
    assert {p.name for p in tmp_path.iterdir()} == {used, new, mine, "thesis"}


def test_a_file_is_replaced_at_once(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "file"
    cache.write(file, "first")
    cache.write(file, b"second")
    assert [(p.name, p.read_text()) for p in file.parent.iterdir()] == [("file", "second")]


def test_the_least_recently_used_value_is_dropped() -> None:
    gone: list[tuple[str, int]] = []
    recent: cache.Recent[str, int] = cache.Recent(2, lambda key, value: gone.append((key, value)))
    assert recent.put("a", 1) == recent.get("a", lambda: 9) == 1
    assert recent.get("b", lambda: 2) == 2
    assert recent.find("a") == 1  # a use, so "b" is the oldest
    assert recent.get("c", lambda: 3) == 3
    assert gone == [("b", 2)]
    assert (recent.find("b"), recent.values(), len(recent)) == (None, [1, 3], 2)
    recent.clear()
    assert (len(recent), len(gone)) == (0, 1)


def test_one_thread_makes_a_value() -> None:
    recent: cache.Recent[str, int] = cache.Recent(2)
    made: list[int] = []

    def make() -> int:
        time.sleep(0.01)
        made.append(len(made))
        return made[-1]

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: recent.get("key", make), range(32))) == {0}
    assert made == [0]


def test_the_value_used_last_is_there_while_another_is_made() -> None:
    recent: cache.Recent[str, int] = cache.Recent(2)
    recent.put("last", 1)
    begun, go_on = Event(), Event()

    def make() -> int:
        begun.set()
        assert go_on.wait(60)
        return 2

    with ThreadPoolExecutor(2) as pool:
        other = pool.submit(recent.get, "other", make)
        assert begun.wait(60)
        try:
            assert pool.submit(recent.get, "last", lambda: 9).result(timeout=60) == 1
        finally:
            go_on.set()
        assert other.result() == 2


def test_a_file_that_cannot_be_used_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "file.json"

    def read() -> int | None:
        return cache.read_json(file, 2, lambda data: int(data["n"]), "the count", "count again")

    assert read() is None
    cache.write_json(file, 2, {"n": 7})
    assert read() == 7
    for text in ("", "[]", "{}", '{"format": 1, "n": 7}', '{"format": 2}', '{"format": 2, "n": "x"}'):
        file.write_text(text)
        with pytest.warns(RuntimeWarning, match=r"bslite ignores the count in .*file\.json .*; count again"):
            assert read() is None


@pytest.mark.processes
def test_kernels_of_two_processes_share_no_name(tmp_path: Path) -> None:
    """Functions of one name would be one to the linker, whatever they compute."""
    found = []
    for reduction in ("amax", "mean"):
        folder = tmp_path / reduction
        printed(
            "from bslite.kernels.cpu.rows.reduce import reduction\n"
            f"reduction({reduction!r}, False, False).address",
            BSLITE_CACHE_DIR=str(folder),
        )
        (kept,) = folder.rglob("*.nbc")
        found.append(set(re.findall(rb"_ZN6bslite7kernels\w*?_lane_sweep\w+", kept.read_bytes())))
    assert all(found)
    assert not found[0] & found[1]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_gives_other_names() -> None:
    from numba.core.bytecode import FunctionIdentity

    import bslite.kernels.cpu  # noqa: F401 (begins to number)

    def number() -> int:
        return FunctionIdentity.from_function(number).unique_id

    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.write(writer, b"%d" % number())
        finally:  # nothing of the child's goes on in pytest
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as said:
        assert abs(int(said.read()) - number()) > 10**6


READS = """
import os, warnings
from bslite import cache
os.access = lambda path, mode: mode != os.W_OK  # as in an image; root may write anywhere else
cache.writable = lambda folder: cache._not_writable(folder, OSError(30, "Read-only file system"))
import numpy as np, bslite
from bslite.kernels.cpu import compiled
from support.graphs import one_op
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    bslite.run(one_op("relu", (2, 3)), np.ones((2, 3), np.float32))
    print(len(compiled), len(said))
    bslite.run(one_op("cumsum", (2, 3), axis=1), np.ones((2, 3), np.float32))
    print(len(compiled), "cannot keep compiled kernels" in str(said[-1].message) if said else said)
"""


@pytest.mark.processes
def test_kernels_in_a_folder_that_cannot_be_written_are_read(tmp_path: Path) -> None:
    fill = (
        "import numpy as np, bslite; from support.graphs import one_op; bslite.run(one_op('relu', (2, 3)), "
    )
    printed(fill + "np.ones((2, 3), np.float32))", BSLITE_CACHE_DIR=str(tmp_path))
    first, then = printed(READS, BSLITE_CACHE_DIR=str(tmp_path)).splitlines()
    assert first == "0 0"
    assert then == "1 True"
