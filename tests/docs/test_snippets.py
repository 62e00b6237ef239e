"""Every snippet of the tutorial and of the how-to pages runs, and prints what its page shows.

A page is one test: it runs from top to bottom in an empty folder, and its snippets share their names.

* Python: a warning is an error, as in all tests.
* Shell: lines that begin with `bslite` run in this process, `bslite serve` in one of its own until the page
  ends, on a free port that later snippets find in the place of the page's. Lines that install are left out.
* A block of `text` behind a snippet is what the snippet prints, but for blanks and numbers with a point. A
  line of `...` stands for any lines.
* `<!-- skip: next "why" -->` leaves out one snippet and says why.
"""

import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from unittest import SkipTest

import pytest

pytest.importorskip("sybil")
from sybil import Example, Sybil
from sybil.example import SybilFailure
from sybil.parsers.myst import CodeBlockParser, SkipParser

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("docs/tutorial/*.md"), *ROOT.glob("docs/howto/*.md")])
NAMES = [page.relative_to(ROOT / "docs").with_suffix("").as_posix() for page in PAGES]
#: Pages that start processes.
PROCESSES = {"howto/serve"}
#: Most snippets that may be left out, of all pages together.
MOST_SKIPPED = 5
#: Lines of a shell that the environment of the tests stands for.
INSTALLING = ("python3 -m venv ", "pip install ")
#: What differs from machine to machine and from run to run: numbers with a point.
FIGURE = re.compile(r"[-+]?\d[\d,]*\.\d+(e[-+]?\d+)?")


class Server:
    """``bslite serve`` on free ports. ``ports``: what the page says -> what it is."""

    def __init__(self, arguments: list[str]) -> None:
        asked = {a: b for a, b in pairwise(arguments) if a in ("--port", "--grpc-port")}
        command = [*arguments, "--port", "0"]
        if "--grpc-port" in asked:
            command += ["--grpc-port", "0"]  # the last one counts
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bslite", *command], stderr=subprocess.PIPE, text=True
        )
        self.lines: list[str] = []
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._ready.wait(300)
        said = "".join(self.lines)
        http = re.search(r"^Listening at http://127\.0\.0\.1:(\d+)", said, re.MULTILINE)
        grpc = re.search(r"^Listening for gRPC at \S+:(\d+)", said, re.MULTILINE)
        assert "Ready: " in said, said
        assert http is not None
        self.ports = {asked.get("--port", "8000"): http[1]}
        if grpc:
            self.ports[asked["--grpc-port"]] = grpc[1]

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if line.startswith("Ready: "):
                self._ready.set()
        self._ready.set()

    def stop(self) -> int:
        """Its exit code, after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        finally:
            self.process.kill()
            self._reader.join(10)
            assert self.process.stderr is not None
            self.process.stderr.close()


class Page:
    """What runs the snippets of one page, and what the latest of them printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys
        self.printed: str | None = None
        self.server: Server | None = None
        self.skipped: list[str] = []

    def parse(self, path: Path) -> list[Example]:
        """The snippets, in order."""
        parsers = [
            CodeBlockParser("python", self._python),
            CodeBlockParser("sh", self._shell),
            CodeBlockParser("text", self._text),
            SkipParser(),
        ]
        return list(Sybil(parsers, pattern="*.md").parse(path).examples())

    def run(self, example: Example) -> None:
        """One snippet; or the reason why it is left out is noted."""
        try:
            example.evaluate()
        except SkipTest as e:
            self.skipped.append(str(e))
            self.printed = None

    def close(self) -> None:
        """The page ends."""
        if self.server is not None:
            assert self.server.stop() == 0, "".join(self.server.lines)

    def _here(self, text: str) -> str:
        """``text``, with the ports that the server has."""
        for page, real in (self.server.ports if self.server else {}).items():
            text = re.sub(rf"\b(localhost|127\.0\.0\.1):{page}\b", rf"\1:{real}", text)
        return text

    def _python(self, example: Example) -> None:
        above = "\n" * (
            example.line + example.parsed.line_offset
        )  # so that a traceback names lines of the page
        example.namespace.setdefault("__name__", "snippets")
        exec(compile(above + self._here(example.parsed), example.path, "exec"), example.namespace)
        self.printed = self.capsys.readouterr().out

    def _shell(self, example: Example) -> None:
        printed = ""
        for line in example.parsed.replace("\\\n", " ").splitlines():
            line = line.strip()
            if not line or line.startswith(("#", *INSTALLING)):
                continue
            words = shlex.split(self._here(line), comments=True)
            before = [w for w in words[:1] if re.match(r"[A-Z_]+=", w)]  # NAME=VALUE in front of a command
            words = words[len(before) :]
            if words[:2] == ["bslite", "serve"]:
                self.server = Server([w for w in words[1:] if w != "&"])
            elif words[0] == "bslite":
                with pytest.MonkeyPatch.context() as patch:
                    for name, _, value in (w.partition("=") for w in before):
                        patch.setenv(name, value)
                    printed += self._bslite(words[1:])
            elif words[0] == "curl":
                printed += _curl(words)
            else:
                raise SybilFailure(example, f"{line}: what is not `bslite` cannot run here: skip it, say why")
        self.printed = printed

    def _bslite(self, words: list[str]) -> str:
        from bslite import cli

        with pytest.raises(SystemExit) as stop:
            cli.main(words)
        out, err = self.capsys.readouterr()
        assert stop.value.code == 0, f"{words}: {out}{err}"
        return out

    def _text(self, example: Example) -> None:
        if self.printed is None:
            return
        problem = differs(example.parsed, self.printed)
        if problem:
            raise SybilFailure(example, f"{problem}\nprinted was:\n{self.printed}")


def differs(shown: str, printed: str) -> str:
    """The first line of ``shown`` that is not in its place in ``printed``; empty if all are."""
    lines, anywhere = [_plain(line) for line in printed.strip().splitlines()], False
    for line in shown.strip().splitlines():
        if line.strip() == "...":
            anywhere = True
            continue
        plain = _plain(line)
        if plain not in (lines if anywhere else lines[:1]):
            return f"not there: {line}"
        del lines[: lines.index(plain) + 1]
        anywhere = False
    return "" if anywhere or not lines else f"not shown: {lines[0]}"


def _plain(line: str) -> str:
    """A line without what differs from run to run: figures, the widths of columns."""
    return "---" if re.fullmatch(r"[-─ ]*-[-─ ]*", line) else " ".join(FIGURE.sub("0", line).split())


def _curl(words: list[str]) -> str:
    if shutil.which("curl") is None:
        return ""
    done = subprocess.run([words[0], "-sS", *words[1:]], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Page]:
    monkeypatch.chdir(tmp_path)
    made = Page(capsys)
    yield made
    made.close()


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.processes] if n in PROCESSES else []) for n in NAMES]
)
def test_page(name: str, page: Page) -> None:
    examples = page.parse(ROOT / "docs" / f"{name}.md")
    assert examples, "the page shows nothing"
    for example in examples:
        page.run(example)


def test_few_snippets_are_left_out() -> None:
    """And each with a reason of some words."""
    reasons = [r for p in PAGES for r in re.findall(r"<!-- skip: (.*?) -->", p.read_text())]
    assert len(reasons) <= MOST_SKIPPED
    assert [r for r in reasons if not re.fullmatch(r'next "\w[^"]{15,}"', r)] == []


def test_what_a_page_shows_is_compared() -> None:
    printed = "layer  op     µs\n-----  ----  ---\nconv   conv2d  12.5\nfc  linear  3\n\npassed: 2 layers\n"
    assert differs("layer op µs\n-- - ---\nconv conv2d 7.1e-3\n...\npassed: 2 layers", printed) == ""
    assert differs("layer  op  µs\n...\nconv   conv2d   7.1e-3\n...", printed) == ""
    assert differs("layer  op  µs\n...\nconv   conv2d   7.1e-3", printed) == "not shown: fc linear 3"
    assert (
        differs("layer  op  µs\nconv   conv2d   7.1e-3\n...", printed) == "not there: conv   conv2d   7.1e-3"
    )
    assert differs("...\npassed: 66 layers", printed) == "not there: passed: 66 layers"
