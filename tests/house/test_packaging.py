"""The wheel holds every folder of code: a package left out of pyproject.toml works here and nowhere else."""

from pathlib import Path

import pytest

tomllib = pytest.importorskip("tomllib")  # Python 3.11

ROOT = Path(__file__).parents[2]


def test_every_package_is_listed() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    homes = {"bslite": "bslite", **{home: name for name, home in settings["package-dir"].items()}}
    found = set()
    for home, name in homes.items():
        for path in (ROOT / home).rglob("__init__.py"):
            found.add(".".join((name, *path.parent.relative_to(ROOT / home).parts)))
    assert sorted(settings["packages"]) == sorted(found)


def test_the_readme_has_both_commands() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    start = "python3 -m venv .venv && . .venv/bin/activate && pip install -c constraints.txt -e "
    assert f'{start}".[cli]" && bslite demo' in lines
    assert f'{start}".[dev]" && pytest' in lines
