"""Pictures are drawn from JSON of all three commands, say where it was measured, and never change alone."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")

from benchmarks import stacks
from benchmarks.depth_first import __main__ as depth_first
from benchmarks.peers import __main__ as peers
from benchmarks.peers.engines import ENGINES
from benchmarks.plot import DRAWINGS, TABLES, __main__, draw, style
from benchmarks.training_steps import OURS, PEERS

RESULTS = sorted((Path(__file__).parent / "results").glob("*.json"))
SVG = "{http://www.w3.org/2000/svg}"


def sized(path: Path) -> bool:
    """Whether the file is a picture of more than one pixel each way."""
    if path.suffix == ".png":
        head = path.read_bytes()[:24]
        return head.startswith(b"\x89PNG") and min(head[16:20], head[20:24]) > bytes((0, 0, 0, 1))
    root = ElementTree.parse(path).getroot()
    return root.tag == f"{SVG}svg" and len(root.findall(f".//{SVG}path")) > 10


def texts(data: dict[str, Any]) -> str:
    figure = DRAWINGS[data["benchmark"]](data)
    found = [t.get_text() for t in figure.texts]
    for ax in figure.axes:
        found += [ax.get_title(loc=loc) for loc in ("left", "center")] + [ax.get_xlabel(), ax.get_ylabel()]
    return "\n".join([*found, *(t.get_text() for legend in figure.legends for t in legend.get_texts())])


def test_commands_draw(tiny: str, tmp_path: Path) -> None:
    json_file = str(tmp_path / "found.json")
    common = ("--rounds", "1", "--json", json_file, "--note", "a note")
    ours = ("bslite", "bslite-layerwise")
    runs: list[tuple[Any, tuple[str, ...], str]] = [
        (peers, ("--nets", tiny, "--batch", "1", "2", "--peers", *ours), "batch 2"),
        (stacks, ("--image", "3", "6", "6", "--depth", "1", "2", "--batch", "1", "--peers", *ours), "µs per"),
        (depth_first, ("--nets", tiny, "--batch", "1", "2", "--threads", "1", "--no-memory"), "speed-up"),
    ]
    for command, options, said in runs:
        for suffix in (".svg", ".png"):
            picture = tmp_path / f"found{suffix}"
            picture.unlink(missing_ok=True)
            assert command.main([*options, *common, "--plot", str(picture)]) == 0
            assert sized(picture)
        data = json.loads(Path(json_file).read_text())
        text = texts(data)
        assert said in text
        for part in (data["machine"]["cpu"], "a note", "thread", data["commit"]):
            assert part in text.replace("\n", " ")


@pytest.mark.parametrize("path", RESULTS, ids=lambda p: p.stem)
def test_committed_results_can_be_drawn_again(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / path.name
    copy.write_text(path.read_text())
    assert __main__.main([str(copy)]) == 0
    picture = copy.with_suffix(".svg")
    if json.loads(path.read_text()).get("benchmark") in TABLES:
        assert "have a table, no picture" in capsys.readouterr().out
        assert not picture.exists()
        return
    assert sized(picture)
    once = picture.read_bytes()
    assert __main__.main([str(copy)]) == 0
    assert picture.read_bytes() == once


def test_what_has_no_figure_is_left_out(tmp_path: Path) -> None:
    """A rival that failed, a case with a wrong answer, memory that was not measured."""
    where = {"machine": {"cpu": "a cpu", "cores": 2}, "commit": "abc", "options": {"image": [1, 2, 3]}}
    one = {"net": "n", "batch": 1, "threads": 1, "seconds": {"bslite": 1e-3, "torch": 2e-3}, "floor": None}
    cases = {
        "peers": [one, {**one, "net": "wrong", "seconds": {}}],
        "stacks": [{"depth": 1, "batch": 1, "threads": 1, "op_bytes": 8, "seconds": {"bslite": 1e-3}}],
        "depth_first": [
            {"net": "n", "batch": 1, "threads": 1, "ratio": 1.2, "planned": {"layerwise": 4}, "measured": {}},
            {"net": "n", "batch": 2, "threads": 1, "ratio": None, "planned": {}, "measured": {}},
        ],
    }
    for benchmark, results in cases.items():
        roofline = {"1": {"bandwidth": 1e10}}
        data = {**where, "benchmark": benchmark, "results": results, "roofline": roofline}
        draw(data, tmp_path / "found.svg")
        assert sized(tmp_path / "found.svg")


def test_every_engine_has_a_colour() -> None:
    assert {*ENGINES, OURS, *PEERS} <= set(style.COLOURS)


def test_a_picture_that_cannot_be_drawn_is_refused_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        peers.main(["--plot", "found.pdf"])
    assert "expected a file name ending in .svg or .png" in capsys.readouterr().err
