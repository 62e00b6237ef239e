"""What a command feeds the model: a picture, an array from a file, or seeded random numbers."""

from pathlib import Path

import numpy as np
import typer

from bslite.errors import FileError, InputError
from bslite.spec import Array, ModelSpec

SAMPLE = Path(__file__).parent / "assets" / "sample.png"
#: ImageNet's channel means and deviations, on a scale of 0 to 1, as in torchvision's transforms.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
MARGIN = 256 / 224  # the picture is resized to this much more than the crop


def make_inputs(
    spec: ModelSpec, file: Path | None, shape: str | None, batch: int | None, seed: int
) -> list[Array]:
    """One array per model input. A file or ``shape`` goes with a model of one input only."""
    if len(spec.inputs) > 1 and (file or shape):
        raise typer.BadParameter(f"{spec.name} takes {len(spec.inputs)} inputs: only random ones, of --batch")
    shapes = [parse_shape(shape) if shape else i.example for i in spec.inputs]
    if batch is not None:
        shapes = [(batch, *s[1:]) for s in shapes]
    if file is None:
        rng = np.random.default_rng(seed)
        return [i.draw(rng, s) for i, s in zip(spec.inputs, shapes, strict=True)]
    if file.suffix.lower() == ".npy":
        return [load_array(file)]
    if len(shapes[0]) != 4 or shapes[0][1] != 3:
        raise InputError(f"{file}: the model takes {list(shapes[0])}, which is no colour image")
    image = load_image(file, (shapes[0][2], shapes[0][3]))
    return [np.repeat(image, shapes[0][0], 0)]


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


def parse_shape(text: str) -> tuple[int, ...]:
    """``1,3,224,224`` as a shape."""
    try:
        return tuple(int(d) for d in text.replace("x", ",").split(","))
    except ValueError:
        raise typer.BadParameter(f"--shape {text!r} is not a list of sizes such as 1,3,224,224") from None
