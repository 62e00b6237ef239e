"""Sizes on a command line."""

import typer

MOST_SIZE = 2**31 - 1  # of an axis


def parse_shape(text: str) -> tuple[int, ...]:
    """``1,3,224,224`` as a shape."""
    try:
        shape = tuple(int(d) for d in text.replace("x", ",").split(","))
    except ValueError:
        raise typer.BadParameter(f"--shape {text!r} is not a list of sizes such as 1,3,224,224") from None
    if not all(1 <= d <= MOST_SIZE for d in shape):
        raise typer.BadParameter(f"--shape {text!r}: each size is from 1 to {MOST_SIZE}")
    return shape
