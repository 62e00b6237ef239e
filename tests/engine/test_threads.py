"""The number of threads by default: what bounds it, in made-up systems and in fresh processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bslite.engines.cpu.limits import Limit, chosen, cores, others, quotas
from bslite.errors import EngineError


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({}, []),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, []),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "350000 100000\n"}, [("/", 3)]),
        (  # the outer one is the least
            {
                "proc/self/cgroup": "0::/pod/app/worker\n",
                "sys/fs/cgroup/pod/cpu.max": "150000 50000",
                "sys/fs/cgroup/pod/app/cpu.max": "800000 100000",
                "sys/fs/cgroup/pod/app/worker/cpu.max": "max 100000",
            },
            [("/pod/app", 8), ("/pod", 3)],
        ),
        (  # in a container with the host's path
            {"proc/self/cgroup": "0::/../../docker/4f1c\n", "sys/fs/cgroup/cpu.max": "50000 100000"},
            [("/", 1)],
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/a\n2:cpu,cpuacct:/a/b\n0::/\n",
                "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "400000",
                "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
            },
            [("/a", 4)],
        ),
        (
            {
                "proc/self/cgroup": "3:cpu:/docker/x\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "250000",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            [("/", 2)],
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "100000 0\n"}, []),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "much\n"}, []),
    ],
)
def test_quotas_of_all_groups_around(
    tmp_path: Path, files: dict[str, str], wanted: list[tuple[str, int]]
) -> None:
    found = list(quotas(written(tmp_path, files)))
    assert found == [Limit(f"CPU quota of the group {group}", whole) for group, whole in wanted]


def test_hyperthreads_are_no_cores(tmp_path: Path) -> None:
    mine = sorted(os.sched_getaffinity(0))
    topology = "sys/devices/system/cpu/cpu{}/topology/{}"
    assert cores(tmp_path) == [Limit("CPUs that it may run on", len(mine))]
    shared = {topology.format(cpu, "thread_siblings_list"): "0,1\n" for cpu in mine}
    found = cores(written(tmp_path / "shared", shared))
    assert [limit.threads for limit in found] == ([len(mine), 1] if len(mine) > 1 else [1])
    apart = {topology.format(cpu, "core_cpus_list"): f"{cpu}\n" for cpu in mine}
    assert [limit.threads for limit in cores(written(tmp_path / "apart", apart))] == [len(mine)]


@pytest.mark.parametrize(("text", "threads"), [("3", 3), (" 12 ", 12), ("", None)])
def test_bslites_own_variable(text: str, threads: int | None) -> None:
    found = chosen({"BSLITE_NUM_THREADS": text})
    assert (found and found.threads) == threads


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "2,4"])
def test_a_wrong_one_is_an_error(text: str) -> None:
    with pytest.raises(EngineError, match=f"BSLITE_NUM_THREADS is '{text}'; a number of threads"):
        chosen({"BSLITE_NUM_THREADS": text})


@pytest.mark.parametrize(
    ("text", "threads"), [("4", 4), ("2,1", 2), ("", None), ("many", None), ("0", None), ("-3", None)]
)
def test_openmps_variable_without_torch(
    text: str, threads: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    found = others({"OMP_NUM_THREADS": text})
    assert (found and found.threads) == threads


#: Prints the threads by default, and the first words of what decided.
ASKS = "{}; from bslite.engines.cpu.threads import *; print(default_threads(), decided())"


@pytest.mark.parametrize(
    ("environment", "before", "wanted"),
    [
        ({}, "", "all"),
        ({"OMP_NUM_THREADS": "1"}, "", "1 1 by OMP_NUM_THREADS"),
        ({"OMP_NUM_THREADS": "1"}, "import torch", "1 1 by torch.get_num_threads()"),
        ({}, "import torch; torch.set_num_threads(1)", "1 1 by torch.get_num_threads()"),
        ({"BSLITE_NUM_THREADS": "1"}, "", "1 1 by BSLITE_NUM_THREADS"),
        ({"BSLITE_NUM_THREADS": "2", "OMP_NUM_THREADS": "1"}, "import torch", "2 2 by BSLITE_NUM_THREADS"),
        ({"NUMBA_NUM_THREADS": "1", "BSLITE_NUM_THREADS": "2"}, "", "1 1 by NUMBA_NUM_THREADS"),
        ({}, "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})", "1 1 by CPUs that"),
    ],
)
def test_in_a_fresh_process(environment: dict[str, str], before: str, wanted: str) -> None:
    names = ("OMP_NUM_THREADS", "BSLITE_NUM_THREADS", "NUMBA_NUM_THREADS")
    clean = {key: value for key, value in os.environ.items() if key not in names}
    if "2" in environment.values() and len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU")
    command = [sys.executable, "-c", ASKS.format(before or "pass")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**clean, **environment})
    if wanted == "all":
        count, _, rest = done.stdout.partition(" ")
        assert int(count) <= len(os.sched_getaffinity(0))
        assert rest.startswith(f"{count} by ")
    else:
        assert done.stdout.startswith(wanted)


def test_the_user_sees_what_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from bslite.cli.app import app

    monkeypatch.setenv("BSLITE_NUM_THREADS", "1")
    shown = CliRunner().invoke(app, ["info"])
    assert shown.exit_code == 0
    assert "1 by BSLITE_NUM_THREADS" in shown.output
    monkeypatch.setenv("BSLITE_NUM_THREADS", "none")
    shown = CliRunner().invoke(app, ["info"])
    assert shown.exit_code != 0
