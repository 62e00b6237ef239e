"""Pages whose text lies outside docs/, and links that lead there.

A page of `SHOWN` is a note for readers of the repository; on the site it has the text of the file that the
note names. Links are rewritten in every page: one to a shown file leads to its page, one to a table of
results to its section of the page of results.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RESULTS = ROOT / "benchmarks" / "results"
#: Page -> the file whose text it has.
SHOWN = {
    "examples": "examples/README.md",
    "explanation/readme": "README.md",
    "explanation/overview": "ARCHITECTURE.md",
    "explanation/contributing": "CONTRIBUTING.md",
    "reference/changelog": "CHANGELOG.md",
    "reference/security": "SECURITY.md",
    "explanation/benchmarks": "benchmarks/README.md",
}
PAGES = {ROOT / file: DOCS / f"{page}.md" for page, file in SHOWN.items()}
ALL_RESULTS = DOCS / "explanation" / "results.md"

_FENCE = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def results() -> str:
    """Every table and picture of benchmarks/results, a section each."""
    parts = ["# Results", "", "Everything in `benchmarks/results`, written by the commands of", ""]
    parts[2] += " [the benchmarks](../../benchmarks/README.md). The machine is in each name.\n"
    for table in sorted(RESULTS.glob("*.md")):
        parts += [f"## {table.stem}", ""]
        parts += [f"![{table.stem}](../../benchmarks/results/{p.name})\n" for p in pictures(table.stem)]
        parts += [re.sub(r"^#", "###", table.read_text(), flags=re.MULTILINE), ""]
    return "\n".join(parts)


def decisions() -> str:
    """The pages below the list of decisions, for the site's navigation."""
    return "\n".join(["```{toctree}", ":hidden:", ":glob:", "", "[0-9]*", "```", ""])


def pictures(stem: str) -> list[Path]:
    """The pictures of a table."""
    return [p for p in (RESULTS / f"{stem}.svg", RESULTS / f"{stem}.png") if p.exists()]


def shown(page: str, text: str) -> tuple[str, Path]:
    """What a page says on the site, and the folder that its links are relative to."""
    if page in SHOWN:
        file = ROOT / SHOWN[page]
        return file.read_text(), file.parent
    if DOCS / f"{page}.md" == ALL_RESULTS:
        return results(), ALL_RESULTS.parent
    return text, (DOCS / page).parent


def relinked(text: str, base: Path, page: str) -> str:
    """``text`` whose links, relative to ``base``, lead to the same from ``page``; code stays as it is."""
    here = (DOCS / page).parent

    def link(found: re.Match[str]) -> str:
        target, anchor = found[1], found[2] or ""
        if re.match(r"[a-z]+:", target):
            return found[0]
        path = Path(os.path.normpath(base / target))
        if path in PAGES:
            path = PAGES[path]
        elif path == RESULTS:
            path = ALL_RESULTS
        elif path.parent == RESULTS and path.suffix == ".md":
            path, anchor = ALL_RESULTS, f"#{path.stem}"
        elif path.suffix == ".md" and DOCS not in path.parents:
            return f"](path:{os.path.relpath(path, here)})"  # a file to download
        return f"]({os.path.relpath(path, here)}{anchor})"

    parts = _FENCE.split(text)
    parts[::2] = [_LINK.sub(link, part) for part in parts[::2]]
    return "".join(parts)


def reader(generated: dict[str, Callable[[], str]]) -> Callable[[Any, str, list[str]], None]:
    """What Sphinx calls with a page it has read; ``generated``: page -> what is added at its end."""

    def read(app: Any, page: str, source: list[str]) -> None:
        text, base = shown(page, source[0])
        if page in generated:
            text = f"{text}\n{generated[page]()}"
        source[0] = relinked(text, base, page)

    return read
