"""The engine that is verified."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bslite.spec import Array, ModelSpec
from bslite.spec.open import no_engine


@dataclass(frozen=True)
class Engine:
    """The engine to verify: ``backend`` "cpu" with ``threads`` threads, or "cuda" on this process's GPU."""

    backend: str = "cpu"
    threads: int | None = None
    device: int = 0

    def run(self, spec: ModelSpec, inputs: list[Array]) -> list[Array]:
        """Outputs for checked arrays."""
        module, options = self._module()
        made: list[Array] = module.run(spec, inputs, **options)
        return made

    def trace(self, spec: ModelSpec, inputs: list[Array]) -> Iterator[tuple[str, Array]]:
        """Yield every value that the engine makes, by name."""
        module, options = self._module()
        yield from module.trace(spec, inputs, **options)

    def _module(self) -> tuple[Any, dict[str, Any]]:
        if self.backend == "cuda":
            from bslite.engines import cuda

            return cuda, {"device": self.device}
        from bslite.engines import cpu

        return cpu, {"threads": self.threads}


CPU = Engine()


def engine_for(given: Sequence[Any], backend: str | None, threads: int | None) -> Engine:
    """The engine of ``backend``; if that is None, of the device that the inputs ``given`` are on."""
    torch = sys.modules.get("torch")
    on_gpu = [v.device for v in given if torch and isinstance(v, torch.Tensor) and v.device.type == "cuda"]
    backend = backend or ("cuda" if on_gpu else "cpu")
    if backend not in ("cpu", "cuda"):
        raise no_engine(backend)
    return Engine(backend, threads, (on_gpu[0].index or 0) if on_gpu else 0)
