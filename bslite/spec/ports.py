"""`Port`: what a caller is told about an input or an output of a model."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Port:
    """An input or output: its name, its sizes, its dtype.

    ``shape`` mixes fixed sizes, names of free ones and None for a size that is known at run time only; it is
    None where even the rank is known at run time only.
    """

    name: str
    shape: tuple[int | str | None, ...] | None
    dtype: str

    def __str__(self) -> str:
        sizes = "..." if self.shape is None else ", ".join("?" if d is None else str(d) for d in self.shape)
        return f"{self.name}: {self.dtype}[{sizes}]"
