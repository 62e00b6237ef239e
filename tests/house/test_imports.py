"""Imports point one way: no circle of modules, and the table of folders in ARCHITECTURE.md is true.

Lazy imports inside functions and imports under TYPE_CHECKING count like any other: a module that names
another depends on it, whenever the import is executed.
"""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


@cache
def modules() -> dict[str, Path]:
    """Name -> file of every module; ``reference`` and ``kernels`` are installed within ``bslite``."""
    found = {}
    for top in ("bslite", "reference", "kernels"):
        for path in sorted((ROOT / top).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            found[name if top == "bslite" else f"bslite.{name}"] = path
    return found


@cache
def imports(module: str) -> set[str]:
    """The modules that a module imports anywhere in its file, other packages' included."""
    found = set()
    for node in ast.walk(ast.parse(modules()[module].read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}: a relative import; name the module in full"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in modules() else str(node.module))
    return found - {module}


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The sets of nodes that reach one another, sorted."""
    reached: dict[str, set[str]] = {}
    for start in edges:
        seen: set[str] = set()
        left = [start]
        while left:
            new = edges.get(left.pop(), set()) - seen
            seen |= new
            left += new
        reached[start] = seen
    found = {
        tuple(sorted(m for m in reached[n] if n in reached.get(m, ()))) for n in edges if n in reached[n]
    }
    return [list(members) for members in sorted(found)]


@cache
def table() -> list[tuple[list[str], set[str]]]:
    """Rows of the table: its folders, and those they may import, themselves and the first row included.

    ``folder/*`` stands for all rows below that folder, "all above" for all rows above.
    """
    rows: list[tuple[list[str], set[str]]] = []
    text = (ROOT / "ARCHITECTURE.md").read_text()
    body = text[text.index("| folder |") :].split("\n\n")[0].splitlines()[2:]
    for line in body:
        first, _, third = (cell.strip() for cell in line.strip("|").split("|"))
        folders = re.findall(r"`([^`]+)`", first)
        above = {name for names, _ in rows for name in names}
        allowed = {*folders, *(rows[0][0] if rows else ())}
        for name in re.findall(r"`([^`]+)`", third):
            below = {a for a in above if a.startswith(name[:-1])} if name.endswith("/*") else {name} & above
            assert below, f"{folders}: `{name}` does not stand in a row above"
            allowed |= below
        rows.append((folders, allowed | above if third.startswith("all above") else allowed))
    return rows


def folder_of(module: str) -> str:
    """The folder of the table that a module belongs to: the longest that holds it."""
    path = module.removeprefix("bslite.").replace(".", "/") if module != "bslite" else "__init__"
    named = [f for folders, _ in table() for f in folders if f"{path}/".startswith(f"{f}/")]
    return max(named, key=len, default="")


def is_empty(path: Path) -> bool:
    """Whether a file holds nothing but a docstring."""
    return all(isinstance(s, ast.Expr) for s in ast.parse(path.read_text()).body)


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert not circles({name: imports(name) for name in modules()})


def test_the_search_finds_circles() -> None:
    edges = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"e"}, "e": set(), "f": {"f2"}, "f2": {"f"}}
    assert circles(edges) == [["a", "b", "c"], ["f", "f2"]]


def test_every_folder_is_in_the_table() -> None:
    code = {name for name, path in modules().items() if not is_empty(path)}
    assert not [name for name in sorted(code) if not folder_of(name)]
    assert {folder_of(name) for name in code} == {folder for folders, _ in table() for folder in folders}


def test_imports_are_those_of_the_table() -> None:
    allowed = {folder: may for folders, may in table() for folder in folders}
    wrong: dict[tuple[str, str], list[str]] = {}
    for name in modules():
        home = folder_of(name)
        for other in imports(name) & modules().keys():
            if home and folder_of(other) not in allowed[home]:
                wrong.setdefault((home, folder_of(other)), []).append(f"{name} imports {other}")
    assert not wrong, "\n".join(line for lines in wrong.values() for line in lines)


def test_contracts_need_no_numba() -> None:
    found = [m for m in modules() if m.startswith("bslite.kernels.contracts")]
    assert not [m for m in found if any(i.split(".")[0] == "numba" for i in imports(m))]
