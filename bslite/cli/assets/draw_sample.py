"""Draws sample.png, the picture `bslite demo` looks at: hills and a lake at dusk. Needs numpy and Pillow.

python bslite/cli/assets/draw_sample.py
"""

from pathlib import Path

import numpy as np
from PIL import Image

WIDTH, HEIGHT, SCALE = 320, 240, 3
SHORE = 0.66  # where the lake begins, as a share of the height


def blend(picture: np.ndarray, colour: tuple[int, int, int], share: np.ndarray) -> np.ndarray:
    """``picture`` with ``share`` of it, per pixel, painted over."""
    return picture * (1 - share[..., None]) + np.array(colour, float) * share[..., None]


def draw() -> Image.Image:
    """The picture, drawn three times as large and averaged down, so that edges are smooth."""
    y, x = np.mgrid[0 : HEIGHT * SCALE, 0 : WIDTH * SCALE] / (HEIGHT * SCALE)  # y in 0..1, x in 0..4/3
    mirrored = np.where(y < SHORE, y, 2 * SHORE - y)  # below the shore the scene is seen again, upside down
    height = mirrored / SHORE
    stops = ([0.0, 0.45, 0.8, 1.0], [(38, 50, 104), (122, 92, 150), (236, 142, 110), (255, 206, 140)])
    sky = [np.interp(height, stops[0], [colour[i] for colour in stops[1]]) for i in range(3)]
    picture = np.stack(sky, -1)
    from_sun = np.hypot(x - 0.86, mirrored - 0.40)
    picture = blend(picture, (255, 224, 170), 0.7 * np.exp(-((from_sun / 0.16) ** 2)))
    picture = blend(picture, (255, 246, 214), (from_sun < 0.07).astype(float))
    hills = [
        (0.47, 0.060, 4.1, 0.4, (120, 84, 128)),
        (0.54, 0.045, 7.3, 2.1, (84, 66, 112)),
        (0.60, 0.030, 11.9, 4.0, (50, 48, 88)),
    ]
    for base, size, frequency, phase, colour in hills:
        ridge = base - size * (np.sin(frequency * x + phase) + 0.4 * np.sin(2.7 * frequency * x + 2 * phase))
        picture = blend(picture, colour, (mirrored > ridge).astype(float))
    ripple = 0.5 + 0.5 * np.sin(2 * np.pi * 14 * np.sqrt(np.maximum(y - SHORE, 0)) + 0.6 * np.sin(9 * x))
    picture = blend(picture, (30, 40, 84), np.where(y > SHORE, 0.25 + 0.25 * ripple, 0.0))
    small = picture.reshape(HEIGHT, SCALE, WIDTH, SCALE, 3).mean((1, 3))
    return Image.fromarray(small.round().clip(0, 255).astype(np.uint8))


if __name__ == "__main__":
    draw().save(Path(__file__).with_name("sample.png"), optimize=True)
