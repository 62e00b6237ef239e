"""Gradients of values, added up as they come from the layers that read them."""

from collections.abc import Sequence

from bslite.ops.values import Piece, Tape, Value


class Sums:
    """The gradients found so far, by the name of the value.

    What goes back to a part of a value waits until all has come: parts side by side are then joined at once
    (three of a product that is split into queries, keys and values, one for each step of a loop), where each
    would be padded with zeros and added to all of it.
    """

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._whole: dict[str, Value] = {}
        self._pieces: dict[str, list[Piece]] = {}

    def add(self, name: str, grad: Value | Piece) -> None:
        """One more gradient of the value ``name``."""
        if isinstance(grad, Piece):
            self._pieces.setdefault(name, []).append(grad)
        else:
            self._whole[name] = self._whole[name] + grad if name in self._whole else grad

    def of(self, name: str) -> Value | None:
        """All of it, once nothing more will come; None if nothing came."""
        for row in _rows(self._pieces.pop(name, ())):
            self.add(name, self._joined(row))
        return self._whole.get(name)

    def _joined(self, row: Sequence[Piece]) -> Value:
        """Pieces that do not overlap, as one, with zeros around and between them."""
        (axis, size), at = (row[0].axis, row[0].size), row[0].start
        first, parts = at, list[Value]()
        for piece in row:
            if piece.start > at:
                shape = list(piece.value.shape)
                shape[axis] = piece.start - at
                parts.append(self._tape.constant(0.0).expand(tuple(shape)))
            parts.append(piece.value)
            at = piece.stop
        joined = self._tape.put("concat", parts, axis=axis) if len(parts) > 1 else parts[0]
        return Piece(joined, axis, first, size).padded()


def _rows(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """The pieces in as few rows of one axis each as go without an overlap, in order."""
    rows: list[list[Piece]] = []
    for piece in sorted(pieces, key=lambda p: (p.axis, p.start)):
        fits = (r for r in rows if r[-1].axis == piece.axis and r[-1].stop <= piece.start)
        row = next(fits, None)
        if row is None:
            rows.append([piece])
        else:
            row.append(piece)
    return rows
