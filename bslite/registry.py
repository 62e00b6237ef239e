"""Tables that fill themselves: a module registers what it holds, a package imports its modules.

So nothing is listed by hand: adding an op, a lowering, a kernel or a frontend's builder is adding a file to
the folder of its kind, or a function to a file that is there.
"""

import importlib
import pkgutil
from collections.abc import Callable, Container
from typing import TypeVar

T = TypeVar("T")


def load_modules(package: str, skip: Container[str] = ()) -> None:
    """Import all modules and packages inside ``package``, in alphabetical order, so that they register.

    ``skip``: modules by their last name that register nothing (scripts, say).
    """
    home = importlib.import_module(package)
    for module in pkgutil.iter_modules(home.__path__, package + "."):
        if module.name.rpartition(".")[2] in skip:
            continue
        importlib.import_module(module.name)
        if module.ispkg:
            load_modules(module.name, skip)


class Registry(dict[str, T]):
    """Name -> what was registered under it, in order of registration. ``what`` is the word for an entry."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def __missing__(self, name: str) -> T:
        raise KeyError(f"no {self.what} {name!r} is registered")

    def add(self, name: str, entry: T) -> T:
        """Put ``entry`` under ``name``; RuntimeError if the name is taken."""
        if name in self:
            raise RuntimeError(f"{self.what} {name!r} is registered twice")
        self[name] = entry
        return entry

    def register(self, *names: str) -> Callable[[T], T]:
        """A decorator that puts what it decorates under all of ``names``."""

        def decorate(entry: T) -> T:
            for name in names:
                self.add(name, entry)
            return entry

        return decorate
