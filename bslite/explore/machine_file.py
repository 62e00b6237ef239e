"""Machines in files: JSON whose ``"kind"`` says what they are; and the examples that come with bslite."""

import json
from pathlib import Path
from typing import Any

from bslite.errors import EngineError, FileError
from bslite.explore import cpu, gpu, spatial
from bslite.explore.gpu import GpuMachine
from bslite.explore.search import Explorer
from bslite.explore.spatial.machine import SpatialMachine
from bslite.machine import Machine, checked

AnyMachine = Machine | GpuMachine | SpatialMachine
KINDS = ("cpu", "gpu", "spatial")
EXAMPLES = Path(__file__).parent / "machines"


def examples() -> list[str]:
    """Names of the machines that come with bslite."""
    return sorted(path.stem for path in EXAMPLES.glob("*.json"))


def find_machine(name: str) -> AnyMachine:
    """The machine of a file, or an example by name. Raises FileError or EngineError naming what is wrong."""
    path = EXAMPLES / f"{name}.json" if name in examples() else Path(name)
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as e:
        why = e.strerror if isinstance(e, OSError) else "not text"
        raise FileError(
            f"{name}: cannot read a machine ({why}); a JSON file, or one of: {', '.join(examples())}"
        ) from None
    try:
        return parse_machine(text)
    except EngineError as e:
        raise EngineError(f"{name}: {e}") from None


def parse_machine(text: str) -> AnyMachine:
    """From JSON: an object with ``"kind"`` "cpu" (if it is left out), "gpu" or "spatial".

    What else is left out has that kind's defaults. Raises EngineError naming what is wrong.
    """
    try:
        data = json.loads(text)
    except ValueError as e:
        raise EngineError(f"a machine is a JSON object: {e}") from None
    kind = data.pop("kind", "cpu") if isinstance(data, dict) else "cpu"
    if kind not in KINDS:
        raise EngineError(f"machine description: kind is {kind!r}, expected one of {', '.join(KINDS)}")
    if kind == "spatial":
        return SpatialMachine.from_dict(data)
    if kind == "gpu":
        return GpuMachine.from_dict(data)
    return checked(Machine, data, "machine")


def kind_of(machine: AnyMachine) -> str:
    """One of `KINDS`."""
    if isinstance(machine, SpatialMachine):
        return "spatial"
    return "gpu" if isinstance(machine, GpuMachine) else "cpu"


def explorer_of(machine: AnyMachine) -> Explorer[Any]:
    """What prices recurrent layers on a machine of this kind."""
    if isinstance(machine, SpatialMachine):
        return spatial.loop
    if isinstance(machine, GpuMachine):
        return gpu
    return cpu
