"""The models that a command names: files, folders of them, ``NAME=PATH``."""

from collections.abc import Sequence
from pathlib import Path

from bslite.compiled import compile
from bslite.errors import FileError, InputError
from bslite.serve.model import Served
from bslite.serve.settings import Settings

SUFFIXES = (".onnx", ".safetensors")


def find(given: Sequence[str]) -> dict[str, Path]:
    """Name -> file. A file's name is its stem. A folder gives the model files in it, and for each folder in
    it that holds one model file, directly or in a folder ``1``, that file under the folder's name.

    FileError for a path without a model, InputError for a name that occurs twice or cannot be one.
    """
    found: dict[str, Path] = {}
    for text in given:
        name, equals, rest = text.partition("=")
        named = bool(equals) and not Path(text).exists()
        path = Path(rest if named else text)
        if path.is_dir():
            made = _in_folder(path)
            if named:
                if len(made) != 1:
                    raise InputError(f"{text}: {path} holds {len(made)} models; a name is given to one")
                made = {name: next(iter(made.values()))}
        elif path.exists():
            made = {name if named else path.stem: path}
        else:
            raise FileError(f"{path}: there is no such file or folder")
        for each, file in made.items():
            if each in found:
                raise InputError(f"model {each!r} is both {found[each]} and {file}; name one: NAME=PATH")
            if not each or "/" in each:
                raise InputError(f"{each!r} cannot be a model's name")
            found[each] = file
    if not found:
        raise InputError("give a model to serve: a file or a folder of them")
    return found


def _in_folder(folder: Path) -> dict[str, Path]:
    made: dict[str, Path] = {}
    for file in _models(folder):
        if (other := made.setdefault(file.stem, file)) is not file:
            raise InputError(f"model {file.stem!r} is both {other} and {file}; name one: NAME=PATH")
    for sub in sorted(p for p in folder.iterdir() if p.is_dir()):
        for place in (sub, sub / "1"):
            if len(files := _models(place)) > 1:
                raise InputError(f"{place} holds {len(files)} models; expected one")
            if files:
                if sub.name in made:
                    raise InputError(f"model {sub.name!r} is both {made[sub.name]} and {files[0]}")
                made[sub.name] = files[0]
                break
    if not made:
        raise FileError(f"{folder}: no {' or '.join(SUFFIXES)} file in it")
    return made


def _models(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and p.is_file())


def load(name: str, path: Path, settings: Settings) -> Served:
    """A model from its file, not warm yet. FileError, SpecError or UnsupportedError say what is wrong."""
    made = compile(
        path, threads=settings.threads, streams=settings.streams, pin=settings.pin,
        precision=settings.precision,
    )  # fmt: skip
    return Served(name, made, path)
