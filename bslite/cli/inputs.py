"""What a command feeds the model: a picture, an array from a file, or seeded random numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import typer

from bslite.cli.sizes import parse_shape
from bslite.errors import FileError, InputError
from bslite.spec import Array, ModelSpec
from bslite.spec.open import OpenModel
from bslite.spec.ports import Port

SAMPLE = Path(__file__).parent / "assets" / "sample.png"
#: ImageNet's channel means and deviations, on a scale of 0 to 1, as in torchvision's transforms.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
MARGIN = 256 / 224  # the picture is resized to this much more than the crop


def make_inputs(
    model: ModelSpec | OpenModel,
    values: Sequence[str] | None,
    shapes: Sequence[str] | None,
    batch: int | None,
    seed: int,
) -> list[Any]:
    """One array per input of the model: given by ``values``, else random, of a shape that is given or is the
    model's own.
    """
    names = [i.name for i in model.inputs]
    wanted = {n: parse_shape(text) for n, text in named(shapes, names, "--shape").items()}
    given = named(values, names, "--input")
    if isinstance(model, OpenModel):
        known: dict[str, Any] = dict(wanted)
        pictures = {n for n, v in given.items() if _is_picture(v, _port(model, n).dtype)}
        values_of = {n: v for n, v in given.items() if n not in pictures}
        known |= {n: _value(v, _port(model, n), wanted.get(n), batch) for n, v in values_of.items()}
        drawn = model.example(known, batch, seed)
        return [
            _picture(given[n], x.shape) if n in pictures else x for n, x in zip(names, drawn, strict=True)
        ]
    rng = np.random.default_rng(seed)
    arrays = []
    for i in model.inputs:
        shape = wanted.get(i.name, i.example)
        shape = shape if batch is None else (batch, *shape[1:])
        if i.name not in given:
            arrays.append(i.draw(rng, shape))
        elif _is_picture(given[i.name], i.dtype):
            arrays.append(_picture(given[i.name], shape))
        else:
            value = _value(given[i.name], Port(i.name, i.shape, i.dtype), shape)
            if (i.name in wanted or batch is not None) and value.shape != shape:
                raise InputError(
                    f"input {i.name!r}: {given[i.name]} holds {list(value.shape)}, expected {list(shape)}"
                )
            arrays.append(value)
    return arrays


def named(given: Sequence[str] | None, names: Sequence[str], option: str) -> dict[str, str]:
    """What an option says of each input: ``NAME=TEXT``, or the text alone for a model of one input."""
    found: dict[str, str] = {}
    for text in given or ():
        name = next((n for n in names if text.startswith(f"{n}=")), None)
        if name is None and len(names) != 1:
            wrong, equals, _ = text.partition("=")
            about = f"there is no input {wrong!r}" if equals else f"say of which it is {text!r}"
            raise typer.BadParameter(f"{option}: {about}; the model takes {', '.join(names)}: NAME=...")
        if (key := name or names[0]) in found:
            raise typer.BadParameter(f"{option} is given twice for {key!r}")
        found[key] = text if name is None else text[len(name) + 1 :]
    return found


def _port(model: OpenModel, name: str) -> Port:
    return next(Port(i.name, i.shape, i.dtype) for i in model.inputs if i.name == name)


def _is_picture(text: str, dtype: str) -> bool:
    return dtype != "string" and not _is_file(text) and not _number(text)


def _is_file(text: str) -> bool:
    return Path(text).suffix.lower() == ".npy"


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _value(text: str, port: Port, shape: tuple[int, ...] | None, batch: int | None = None) -> Array:
    """An array from a file, or one of a number or, where the model takes strings, of a text."""
    if _is_file(text):
        return load_array(Path(text))
    if shape is None:
        shape = tuple(d if isinstance(d, int) else 1 for d in port.shape or ())
        if batch is not None and port.shape and not isinstance(port.shape[0], int):
            shape = (batch, *shape[1:])
    kind = "U" if port.dtype == "string" else np.dtype(port.dtype).kind
    if kind in "biu" and not float(text).is_integer():
        raise InputError(f"input {port.name!r} is {port.dtype}, got {text}")
    filler = text if kind == "U" else float(text) if kind == "f" else int(float(text))
    if kind == "b" and filler not in (0, 1):
        raise InputError(f"input {port.name!r} is bool, got {text}")
    if kind in "iu" and not (limits := np.iinfo(port.dtype)).min <= int(filler) <= limits.max:
        raise InputError(
            f"input {port.name!r} is {port.dtype}, from {limits.min} to {limits.max}, got {text}"
        )
    return np.full(shape, filler, object if kind == "U" else port.dtype)


def _picture(text: str, shape: tuple[int, ...]) -> Array:
    if len(shape) != 4 or shape[1] != 3:
        raise InputError(
            f"--input {text!r} is neither a number nor a .npy file, and cannot be a picture: "
            f"the model takes {list(shape)}, which is no colour image [N, 3, H, W]"
        )
    return np.repeat(load_image(Path(text), (shape[2], shape[3])), shape[0], 0)


def load_array(path: Path) -> Array:
    """A .npy file, never unpickled."""
    try:
        loaded = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as e:
        raise FileError(f"{path}: not a readable .npy file ({e})") from e
    if not isinstance(loaded, np.ndarray):
        raise FileError(f"{path}: an archive of several arrays; expected one array")
    return loaded


def load_image(path: Path, size: tuple[int, int]) -> Array:
    """A picture as float32 ``[1, 3, *size]``: shorter side 256/224 of the crop, centre crop, normalised."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise FileError(f'{path}: reading a picture needs Pillow; pip install "bslite[cli]"') from None
    height, width = size
    try:
        with Image.open(path) as opened:
            picture = opened.convert("RGB")
    except (OSError, ValueError, Image.DecompressionBombError) as e:
        raise FileError(f"{path}: not a readable image ({e})") from e
    scale = max(width * MARGIN / picture.width, height * MARGIN / picture.height)
    larger = (max(width, round(picture.width * scale)), max(height, round(picture.height * scale)))
    picture = picture.resize(larger, Image.Resampling.BILINEAR)
    left, top = (picture.width - width) // 2, (picture.height - height) // 2
    pixels = np.asarray(picture.crop((left, top, left + width, top + height)), np.float32) / 255  # [H, W, 3]
    normal = (pixels - np.array(MEAN, np.float32)) / np.array(DEVIATION, np.float32)
    return np.ascontiguousarray(normal.transpose(2, 0, 1)[None])
