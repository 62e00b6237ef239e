"""The comparison on the spatial accelerator runs, ranks the ways, and is drawn."""

import json
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from benchmarks import spatial


def test_runs_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {name: str(tmp_path / f"found.{name}") for name in ("json", "md", "svg")}
    options = ("--json", files["json"], "--md", files["md"], "--plot", files["svg"])
    case = ("--machines", "plasticine-wide", "--hidden", "256", "--batch", "1")
    assert spatial.main([*case, *options]) == 0
    data = json.loads(Path(files["json"]).read_text())
    (result,) = data["results"]
    over = result["over_loop"]
    assert over["loop"] == 1 < over["few kernels"] < over["kernels"] <= over["one tile"]
    assert over["kernels"] > result["over_loop_free_launches"]["kernels"] > over["few kernels"]
    text = Path(files["md"]).read_text()
    assert "lstm 256 x 150" in text
    assert "plasticine-wide" in capsys.readouterr().out
    assert Path(files["svg"]).read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("--machines", "h200"), "h200 is not a spatial machine"), (("--hidden", "7"), "none of [7]")],
)
def test_mistakes_are_told(arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        spatial.main(list(arguments))
    assert said in capsys.readouterr().err
