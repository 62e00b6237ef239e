"""Documentation that is generated is current, what it points to exists, what it shows is what happens."""

import re
import sys
from pathlib import Path
from types import FrameType

import pytest

from bslite.ops.table import op_table
from bslite.spec import ModelSpec

ROOT = Path(__file__).parents[2]
#: Every page but the licence.
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md")), ROOT / "benchmarks" / "README.md"]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
#: Most words of a page; a reader gets through the overview in ten minutes.
WORDS = {"ARCHITECTURE.md": 1500, "docs/architecture": 800}
CODE = ("bslite", "reference", "kernels", "tests", "benchmarks", "docs")


def text_of(page: str) -> str:
    """The page without its blocks of code, in which names are examples."""
    return re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)


def block(page: str, first: str) -> str:
    """The block of code in ``page`` that begins with ``first``."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    (found,) = [b for b in blocks if b.startswith(first)]
    return str(found)


def test_op_table_is_current() -> None:
    stored = (ROOT / "docs" / "ops.md").read_text()
    assert stored == op_table(), "run: python -m bslite.ops.table > docs/ops.md"


def test_onnx_table_is_current() -> None:
    onnx = pytest.importorskip("onnx")
    from bslite.onnx.table import onnx_table

    stored = (ROOT / "docs" / "onnx.md").read_text()
    if f"onnx {onnx.__version__}." not in stored:
        pytest.skip("written with another version of onnx, whose operators are others")
    assert stored == onnx_table(), "run: python -m bslite.onnx.table > docs/onnx.md"


@pytest.mark.parametrize("page", NAMES)
def test_links_lead_somewhere(page: str) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(#[^)]*)?\)", text_of(page)):
        assert target.startswith("http") or ((ROOT / page).parent / target).exists(), target + anchor


@pytest.mark.parametrize("page", NAMES)
def test_files_named_in_text_exist(page: str) -> None:
    """Paths from the root are there; a bare file name is one of some folder's."""
    known = {path.name for folder in CODE for path in (ROOT / folder).rglob("*.*")}
    for name in re.findall(r"`([\w./-]+)`", text_of(page)):
        if name.split("/")[0] in CODE and "/" in name:
            assert any((ROOT / path).exists() for path in (name, f"bslite/{name}", f"{name}.py")), name
        elif re.fullmatch(r"[\w/]+\.(py|md)", name):
            assert name.rpartition("/")[2] in known or (ROOT / name).exists(), name


@pytest.mark.parametrize("page", [n for n in NAMES if n.startswith(tuple(WORDS))])
def test_pages_are_short(page: str) -> None:
    most = next(words for start, words in WORDS.items() if page.startswith(start))
    assert len((ROOT / page).read_text().split()) <= most


def test_results_are_small() -> None:
    """What is larger, the pages say how to make."""
    assert not [f.name for f in (ROOT / "benchmarks" / "results").iterdir() if f.stat().st_size > 300_000]


def test_every_page_is_reached() -> None:
    """From the README, by links."""
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if not target.startswith("http"):
                waiting.append((page.parent / target).resolve())
    assert [str(p) for p in PAGES if p not in reached] == []


def example() -> ModelSpec:
    """The convolution that goes through the pages."""
    scope: dict[str, object] = {}
    exec(block("docs/architecture/description.md", "import numpy").replace("print(spec)", ""), scope)
    spec = scope["spec"]
    assert isinstance(spec, ModelSpec)
    return spec


def test_the_worked_example_prints_what_the_pages_show() -> None:
    from bslite.machine import Machine
    from bslite.passes import simplify
    from bslite.plan import build_plan

    spec = example()
    assert block("docs/architecture/description.md", "example: 3") == f"{spec}\n"
    simple = simplify(spec)
    assert block("docs/architecture/passes.md", "example: 2") == f"{simple}\n"
    plan = build_plan(simple, [(1, 64, 56, 56)], Machine(threads=2, l2=2 << 20))
    assert block("docs/architecture/plan.md", "plan of") == f"{plan}\n"
    numbers = plan.steps[2].record.numbers()
    shown = re.findall(r"`(\w+)` (-?\d+)\b", text_of("docs/architecture/contracts.md"))
    assert len(shown) > 20
    assert [(name, value) for name, value in shown if numbers[name] != int(value)] == []


def test_a_convolution_takes_the_way_of_the_overview(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are entered in the order of ARCHITECTURE's table; compiled kernels are not seen."""
    import numpy as np

    import bslite
    from bslite.engines.cpu import job
    from bslite.kernels.cpu.runtime.compile import Kernel

    monkeypatch.setattr(Kernel, "address", property(lambda kernel: 1))
    monkeypatch.setattr(job, "fork_join", lambda *arguments: True)
    spec, x = example(), np.zeros((1, 64, 56, 56), np.float32)
    entered: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            entered.setdefault(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        bslite.run(spec, x)
    finally:
        sys.setprofile(None)
    table = (ROOT / "ARCHITECTURE.md").read_text().split("| file | what happens there |")[1].split("\n\n")[0]
    listed = re.findall(r"^\| `([^`]+)`", table, flags=re.MULTILINE)
    assert len(set(listed)) == len(listed) > 15
    planned = [path for path in listed if path.startswith("bslite/")]
    order = [str(ROOT / path) for path in planned]
    assert [path for path in entered if path in order] == order
