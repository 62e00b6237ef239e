"""The site: its reference names all there is, and it builds without a warning and without the network."""

import ast
import functools
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import bslite
from bslite import errors

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CODE = [p for top in ("bslite", "kernels", "reference") for p in sorted((ROOT / top).rglob("*.py"))]
TEXT = (ast.JoinedStr, ast.Constant)
#: A variable's name says whose it is.
OWNERS = ("BSLITE", "NUMBA", "OMP", "GRPC", "CUDA", "XDG", "MKL", "OPENBLAS", "RAY", "TORCH", "HF")


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text()


def extension(name: str) -> ModuleType:
    """A file of docs/_extensions."""
    spec = importlib.util.spec_from_file_location(f"site_{name}", DOCS / "_extensions" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def constants(tree: ast.Module) -> dict[str, str]:
    """The module's names for texts."""
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value.value, str)
    }


def read_variables(tree: ast.Module) -> Iterator[str]:
    """The environment's variables that a module reads or sets: ``os.environ``, ``environment``."""
    known = constants(tree)
    for node in ast.walk(tree):
        key = None
        if isinstance(node, ast.Subscript):
            of, key = node.value, node.slice
        elif isinstance(node, ast.Call) and node.args:
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "setdefault", "pop"):
                of, key = node.func.value, node.args[0]
            elif ast.unparse(node.func) in ("os.getenv", "getenv"):
                of, key = ast.Name("environ"), node.args[0]
        if key is None or ast.unparse(of).rpartition(".")[2] not in ("environ", "environment", "environb"):
            continue
        name = known.get(key.id) if isinstance(key, ast.Name) else getattr(key, "value", None)
        assert isinstance(name, str), f"{ast.unparse(node)}: a variable whose name is not known"
        yield name


@functools.cache
def trees() -> list[ast.Module]:
    """Every module of the code."""
    return [ast.parse(path.read_text()) for path in CODE]


def variables() -> set[str]:
    """Every variable that the code reads, or names in a text or a docstring."""
    found = {name for tree in trees() for name in read_variables(tree)}
    for text in texts():
        names = re.findall(rf"\b(?:{'|'.join(OWNERS)})_[A-Z_]+\b", text)
        found |= {n for n in names if not n.startswith(("CUDA_ERROR", "CUDA_SUCCESS"))}
    return found


@functools.cache
def texts() -> frozenset[str]:
    """Every text in the code, with … for what is filled in."""
    return frozenset(filled(node) for tree in trees() for node in ast.walk(tree) if isinstance(node, TEXT))


def raised() -> dict[str, set[str]]:
    """Class -> the messages that it is made with."""
    found: dict[str, set[str]] = {}
    for node in (node for tree in trees() for node in ast.walk(tree)):
        if isinstance(node, ast.Call) and node.args:
            said = {filled(part) for part in ast.walk(node.args[0]) if isinstance(part, TEXT)}
            found.setdefault(ast.unparse(node.func).rpartition(".")[2], set()).update(said)
    return found


def filled(text: ast.JoinedStr | ast.Constant) -> str:
    if isinstance(text, ast.Constant):
        return str(text.value)
    return "".join(str(v.value) if isinstance(v, ast.Constant) else "…" for v in text.values)


def test_every_public_name_is_on_the_page() -> None:
    blocks = re.findall(r"\.\. autosummary::\n\n((?:   \S+\n)+)", page("reference/api"))
    listed = [name for block in blocks for name in block.split()]
    assert sorted(listed) == sorted(bslite.__all__)


def test_every_public_name_has_its_docstring_on_a_page() -> None:
    texts = [*map(Path.read_text, (DOCS / "reference" / "api").glob("*.md")), page("reference/errors")]
    described = re.findall(r"^\.\. (?:auto\w+|data):: (\w+)", "\n".join(texts), flags=re.MULTILINE)
    assert set(bslite.__all__) - set(described) == set()


def test_every_variable_is_described() -> None:
    rows = re.findall(r"^\| (`.+?) \|", page("reference/environment"), flags=re.MULTILINE)
    described = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert {"BSLITE_NUM_THREADS", "BSLITE_CACHE_DIR", "BSLITE_API_KEY", "LOCALAPPDATA"} <= variables()
    assert variables() - described == set()


def test_the_search_finds_variables() -> None:
    code = 'A = "X"\nos.environ[A]\nos.environ.get("Y")\nos.getenv("Z")\nenvironment.get("W")\n{}.get("V")'
    assert sorted(read_variables(ast.parse(code))) == ["W", "X", "Y", "Z"]


def test_every_error_is_described() -> None:
    classes = {n for n, v in vars(errors).items() if isinstance(v, type) and issubclass(v, Exception)}
    text = page("reference/errors")
    rows = re.findall(r"^\| `(\w+Error)` \| ((?:`\w+`(?:, )?)+) \|", text, flags=re.MULTILINE)
    assert {name for name, _ in rows} == classes - {"BsliteError"}
    for name, others in rows:
        bases = {base.__name__ for base in getattr(errors, name).__bases__} - {"BsliteError"}
        assert set(re.findall(r"\w+", others)) == bases


def test_the_messages_are_those_of_the_code() -> None:
    text = page("reference/errors")
    rows = re.findall(r"^\| `(.+?)` \| (\w+(?:Error|Warning)) \|", text, flags=re.MULTILINE)
    assert len(rows) > 20
    assert [message for message, _ in rows if not any(message in text for text in texts())] == []
    # A message may be made by another class: what is wrong within a file is a FileError to its reader.
    found = raised()
    direct = [name for message, name in rows if any(message in text for text in found.get(name, ()))]
    assert len(direct) > len(rows) // 2


def test_every_command_and_option_is_on_the_page() -> None:
    pytest.importorskip("typer")
    commands = extension("commands")
    text = commands.text()
    for name, command in commands.group().commands.items():
        _, _, section = text.partition(f"## bslite {name}\n")
        section = section.partition("\n## ")[0]
        for parameter in command.params:
            options = [o for o in (*parameter.opts, *parameter.secondary_opts) if o.startswith("-")]
            assert [o for o in options if o not in section] == [], name
            assert parameter.help in section.replace("\\|", "|"), (name, parameter.name)


def test_pages_outside_are_there() -> None:
    outside = extension("outside")
    for name, file in outside.SHOWN.items():
        assert (DOCS / f"{name}.md").exists()
        assert outside.shown(name, "")[0] == (ROOT / file).read_text()
    assert "](results.md#xeon-serving)" in outside.relinked(
        "[a](../../benchmarks/results/xeon-serving.md)", DOCS / "explanation", "explanation/papers"
    )
    away = outside.relinked("[a](tests/x.md)", ROOT, "index")
    assert away == "[a](path:../tests/x.md)"
    code = "```text\n[a](../../README.md)\n```\n"
    assert outside.relinked(code, DOCS / "explanation", "explanation/papers") == code


@pytest.mark.processes
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    pytest.importorskip("pydata_sphinx_theme")
    pytest.importorskip("mmdr")
    command = [sys.executable, "-m", "sphinx", "-W", "-n", "-q", "-b", "html"]
    made = subprocess.run([*command, "docs", str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    pages = {p.relative_to(tmp_path).with_suffix(""): p.read_text() for p in tmp_path.rglob("*.html")}
    html = "\n".join(pages.values())
    assert [name for name in bslite.__all__ if f'id="bslite.{name}"' not in html] == []
    loaded = re.findall(r'<(?:script|link|img|iframe)\b[^>]*(?:src|href)="(?:https?:)?//[^"]*"', html)
    assert loaded == []  # nothing that a reader's machine would have to fetch elsewhere
    assert 'class="diagram"' in pages[Path("explanation/overview")]
    assert "bslite warmup" in pages[Path("reference/cli")]
