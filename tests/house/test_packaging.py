"""What strangers install: the wheel holds every folder of code and its data, one place has the version, and
what is said of Python versions and releases agrees.
"""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from support.process import python

import bslite

tomllib = pytest.importorskip("tomllib")  # Python 3.11

ROOT = Path(__file__).parents[2]
DATA = ("bslite/py.typed", "bslite/cli/assets/sample.png")
SOURCES = ("bslite", "kernels", "reference", "pyproject.toml", "README.md", "LICENSE")

#: Run where only the wheel is: the engine, package data, the command line.
USED = """
import sys
import numpy as np
import bslite
from bslite.cli import main
from bslite.cli.inputs import SAMPLE, load_image
from bslite.explore.machine_file import find_machine
from bslite.spec import GraphBuilder
graph = GraphBuilder("small")
y = graph.add("softmax", "y", graph.input("x", ("N", 4)), axis=1)
made = bslite.run(graph.build(y), np.zeros((2, 4), np.float32))
assert (made == 0.25).all()
assert load_image(SAMPLE, (8, 8)).shape == (1, 3, 8, 8)
find_machine("h200")
print(bslite.__file__)
main(["info"])
"""


def settings() -> Any:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def homes() -> dict[str, str]:
    """Folder in the repository -> name of the package that it is installed as."""
    inside = settings()["tool"]["setuptools"]["package-dir"]
    return {"bslite": "bslite", **{home: name for name, home in inside.items()}}


def test_every_package_is_listed() -> None:
    found = set()
    for home, name in homes().items():
        for path in (ROOT / home).rglob("__init__.py"):
            found.add(".".join((name, *path.parent.relative_to(ROOT / home).parts)))
    assert sorted(settings()["tool"]["setuptools"]["packages"]) == sorted(found)


def test_the_readme_has_both_commands() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    start = "python3 -m venv .venv && . .venv/bin/activate && pip install -c constraints.txt -e "
    assert f'{start}".[cli]" && bslite demo' in lines
    assert f'{start}".[dev]" && pytest' in lines


def test_the_version_stands_in_one_place() -> None:
    assert settings()["project"]["dynamic"] == ["version"]
    assert settings()["tool"]["setuptools"]["dynamic"] == {"version": {"attr": "bslite.__version__"}}
    assert importlib.metadata.version("bslite") == bslite.__version__, "install it again: pip install -e ."
    assert f"\nversion: {bslite.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert re.search(rf"^## \[?{re.escape(bslite.__version__)}\b", (ROOT / "CHANGELOG.md").read_text(), re.M)


def test_python_versions_agree() -> None:
    """Those with a classifier were tested; README names the first and the last of them, CI runs them all."""
    project = settings()["project"]
    stated = "Programming Language :: Python :: 3."
    minors = sorted(int(c.removeprefix(stated)) for c in project["classifiers"] if c.startswith(stated))
    assert minors == list(range(minors[0], minors[-1] + 1))
    assert project["requires-python"] == f">=3.{minors[0]}"
    said = f"(tested with 3.{minors[0]} to 3.{minors[-1]})"
    assert said in (ROOT / "README.md").read_text()
    matrix = re.search(r"python: \[(.*)\]", (ROOT / ".github/workflows/ci.yml").read_text())
    assert matrix is not None
    assert {f"3.{minor}" for minor in minors} <= set(re.findall(r"[\d.]+", matrix[1]))


@pytest.mark.parametrize("workflow", ["ci.yml", "release.yml"])
def test_actions_are_pinned_by_commit(workflow: str) -> None:
    used = re.findall(r"uses: (.*)", (ROOT / ".github" / "workflows" / workflow).read_text())
    assert used
    assert [line for line in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", line)] == []


@pytest.mark.processes
def test_the_wheel_is_whole_and_works_alone(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source / name)
    build = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "--quiet"]
    done = subprocess.run(
        [*build, "--wheel-dir", str(tmp_path)], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("*.whl")
    assert wheel.name == f"bslite-{bslite.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = [n for n in archive.namelist() if ".dist-info/" not in n]
        archive.extractall(tmp_path / "installed")
    expected = {*DATA}
    for home, name in homes().items():
        inside = name.replace(".", "/")
        code = [p.relative_to(ROOT / home) for p in (ROOT / home).rglob("*.py")]
        expected |= {f"{inside}/{p.as_posix()}" for p in code if "assets" not in p.parts}
    expected |= {f"bslite/explore/machines/{p.name}" for p in ROOT.glob("bslite/explore/machines/*.json")}
    assert sorted(names) == sorted(expected)
    empty = tmp_path / "elsewhere"
    empty.mkdir()
    used = python(f"import os; os.chdir({str(empty)!r})\n{USED}", PYTHONPATH=str(tmp_path / "installed"))
    assert used.returncode == 0, used.stderr
    assert used.stdout.startswith(os.fspath(tmp_path / "installed" / "bslite" / "__init__.py"))
    assert f"{bslite.__version__}, Python" in used.stdout
