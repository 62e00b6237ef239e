"""What a kernel is compiled from: the modules its own imports, directly or through others, and their digest.

Compiled kernels are kept on disk under that digest, so an edited file recompiles the kernels whose modules
reach it by imports, and no others. Packages on the way (``bslite/kernels/cpu/__init__.py``) count only where
a module imports from them: importing everything in a folder does not change what one module compiles to.

All sources are read once, when this module is first imported, which is when the process imports the kernels
themselves. A file that is edited while the process runs therefore never lends its digest to code that was
compiled from what the file held before.
"""

import functools
import hashlib
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FunctionType
from typing import Any

_PACKAGE = __name__.rpartition(".")[0]  # bslite.kernels
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(bslite[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+(bslite[^\n]*))",
    re.M,
)


def _read() -> dict[str, str]:
    """Module -> source, of all kernels and of the modules at the top of bslite, which kernels may import."""
    root = _PACKAGE.partition(".")[0]
    top = Path(sys.modules[root].__path__[0])
    found = {f"{root}.{file.stem}": file for file in top.glob("*.py")}
    here = Path(__file__).parent
    for file in here.rglob("*.py"):
        inside = ".".join((_PACKAGE, *file.relative_to(here).with_suffix("").parts))
        found[inside] = file
    return {name.removesuffix(".__init__"): file.read_text(encoding="utf-8") for name, file in found.items()}


_SOURCES = _read()


def modules() -> tuple[str, ...]:
    """All modules whose sources this process has read."""
    return tuple(_SOURCES)


def imports_of(source: str) -> set[str]:
    """Dotted names that a source imports from bslite, lazily or not; names of things in modules among them.

    Found by a pattern: to parse every source would take a tenth of a second of each start.
    """
    found: set[str] = set()
    for package, names, plain in _IMPORT.findall(re.sub("#.*", "", source)):
        found.update(re.findall(r"bslite[\w.]*", plain))
        if package:
            found.add(package)
            found.update(f"{package}.{name}" for name in re.findall(r"\w+", names))
    return found


@functools.cache
def _imported(module: str) -> frozenset[str]:
    return frozenset(imports_of(_SOURCES[module]) & _SOURCES.keys())


def closure(roots: Iterable[str]) -> set[str]:
    """``roots`` and all modules of bslite that they import, directly or through others."""
    reached: set[str] = set()
    waiting = list(roots)
    while waiting:
        module = waiting.pop()
        if module not in reached:
            reached.add(module)
            waiting += _imported(module)
    return reached


def homes_of(kernel: Callable[..., Any]) -> set[str]:
    """The modules that define a kernel and what it closes over: a factory may have been given a function by a
    module that its own does not import.

    LookupError for a function whose source cannot be read.
    """
    homes: set[str] = set()
    seen: set[int] = set()
    waiting: list[Any] = [kernel]
    while waiting:
        value = waiting.pop()
        value = getattr(value, "py_func", value)  # of Numba's dispatchers, the function they compile
        if id(value) in seen:
            continue
        seen.add(id(value))
        home = getattr(value, "__module__", None)
        if isinstance(value, FunctionType):
            if home not in _SOURCES:  # a kernel defined outside of bslite, by a test for example
                _SOURCES[home] = _source_outside(home)
            waiting += [cell.cell_contents for cell in value.__closure__ or ()]
        elif isinstance(value, (tuple, list)):
            waiting += value
        if home in _SOURCES:
            homes.add(home)
    return homes


def _source_outside(module: str) -> str:
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        raise LookupError(f"the source of module {module} is not known")
    return Path(file).read_text(encoding="utf-8")


def digest(roots: Iterable[str]) -> str:
    """16 hexadecimal digits that tell the sources of ``roots`` and of all that they import."""
    return _digest(frozenset(roots))


@functools.cache
def _digest(roots: frozenset[str]) -> str:
    taken = hashlib.sha256()
    for module in sorted(closure(roots)):
        taken.update(hashlib.sha256(f"{module}\n{_SOURCES[module]}".encode()).digest())
    return taken.hexdigest()[:16]


def digest_of(function: Callable[..., Any]) -> str:
    """`digest` of the modules that a kernel's Python function comes from."""
    return digest(homes_of(function))
