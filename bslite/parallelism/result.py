"""What `tune` found: settings with their figures, the choice, and why."""

from dataclasses import asdict, dataclass
from typing import Any

from bslite.parallelism.host import Host
from bslite.parallelism.price import Estimate
from bslite.parallelism.rules import Rule
from bslite.parallelism.setting import Setting
from bslite.parallelism.width import Width


@dataclass(frozen=True)
class Row:
    """A setting, by ``rules`` that recommend it. ``simulated`` where the cores are not here, ``measured``
    where they are and it was among the best by price.
    """

    setting: Setting
    rules: tuple[str, ...]
    priced: Estimate
    simulated: Estimate | None = None
    measured: Estimate | None = None


@dataclass(frozen=True)
class Found:
    """What an `Advice` holds, described there."""

    model: str
    target: str
    cores: int
    width: Width
    rules: tuple[Rule, ...]
    rows: tuple[Row, ...]
    choice: Setting
    why: str
    host: Host

    @property
    def measured(self) -> bool:
        """Whether the choice rests on measurements of the settings themselves."""
        return self.rows[0].measured is not None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "model": self.model,
            "target": self.target,
            "cores": self.cores,
            "width": {**asdict(self.width), "average": self.width.average},
            "rules": [asdict(rule) for rule in self.rules],
            "choice": asdict(self.choice),
            "why": self.why,
            "host": self.host.as_dict(),
            "settings": [
                {
                    **asdict(row.setting),
                    "rules": list(row.rules),
                    "priced": asdict(row.priced),
                    "simulated": row.simulated and asdict(row.simulated),
                    "measured": row.measured and asdict(row.measured),
                }
                for row in self.rows
            ],
        }
