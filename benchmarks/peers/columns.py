"""The columns of the tables: each rival in each precision that it is measured in, by name.

A rival's name alone is its column in float32. In another precision the word is added: ``bslite-bfloat16``.
"""

from collections.abc import Sequence

from benchmarks.peers.bfloat16 import BFLOAT16
from benchmarks.peers.engines import ENGINES, Bslite, BsliteLayerwise, Engine
from bslite.arithmetic import Precision

WORDS = tuple(p.value for p in Precision)
DEFAULT = Precision.FLOAT32.value
#: The precision of the peers that each of bslite's is held against. Nobody else has three products.
AGAINST = {word: word if word == Precision.BFLOAT16.value else DEFAULT for word in WORDS}


def column(rival: str, precision: str) -> str:
    """The name of a rival's column."""
    return rival if precision == DEFAULT else f"{rival}-{precision}"


def _in_precision(engine: type[Bslite], word: str) -> type[Engine]:
    """bslite's engine told another precision."""
    members = {"name": column(engine.name, word), "precision": word, "__doc__": f"{engine.name} in {word}."}
    made: type[Engine] = type(f"{engine.__name__}_{word}", (engine,), members)
    return made


_OURS = [_in_precision(engine, word) for word in WORDS[1:] for engine in (Bslite, BsliteLayerwise)]
_ALL: tuple[type[Engine], ...] = (Bslite, BsliteLayerwise, *_OURS, *ENGINES.values(), *BFLOAT16)
COLUMNS: dict[str, type[Engine]] = {engine.name: engine for engine in _ALL}
#: What ``--peers`` takes: rivals without a precision.
RIVALS = tuple(dict.fromkeys((*ENGINES, *(e.name.removesuffix(f"-{e.precision}") for e in BFLOAT16))))


def columns(rivals: Sequence[str], precisions: Sequence[str]) -> list[str]:
    """Those measured: bslite in each of the precisions, the others in those that bslite is held against."""
    wanted = {AGAINST[word] for word in precisions}
    names = {column(rival, word) for rival in rivals for word in WORDS}
    return [
        name
        for name, e in COLUMNS.items()
        if name in names and e.precision in (precisions if e.ours else wanted)
    ]
