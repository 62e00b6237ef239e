"""Plans as JSON, there and back: to look at, to compare, to keep."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from bslite.plan.core.plan import Access, Band, Const, End, Plan, Step
from bslite.plan.core.views import Buffer, View

FORMAT = 3


def to_json(plan: Plan) -> str:
    """The plan as a strict JSON document; equal plans give equal text."""
    return json.dumps({"bslite_plan": FORMAT, **_plain(dataclasses.asdict(plan))}, allow_nan=False)


def from_json(text: str) -> Plan:
    """The plan `to_json` wrote. ValueError if it is not one."""
    data = json.loads(text)
    if not isinstance(data, dict) or data.pop("bslite_plan", None) != FORMAT:
        raise ValueError(f"not a bslite plan of format {FORMAT}")
    return _plan(_unplain(data))


def _plain(value: Any) -> Any:
    """JSON has no infinities: they become ``{"float": "inf"}``."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value


def _unplain(value: Any) -> Any:
    if isinstance(value, dict):
        return (
            float(value["float"]) if set(value) == {"float"} else {k: _unplain(v) for k, v in value.items()}
        )
    return [_unplain(v) for v in value] if isinstance(value, list) else value


def _tuples(value: Any) -> Any:
    """Lists as tuples, at every depth."""
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value


def _view(data: dict[str, Any]) -> View:
    return View(**{k: _tuples(v) for k, v in data.items()})


def _access(data: dict[str, Any]) -> Access:
    return Access(**{k: _tuples(v) for k, v in data.items()})


def _args(data: dict[str, Any]) -> dict[str, Any]:
    """Of a launch on a GPU: what was tuples is tuples again."""
    if "variant" not in data:
        return data
    variant = {k: _tuples(v) for k, v in data["variant"].items()}
    return {k: _tuples(v) for k, v in data.items()} | {"variant": variant}


def _step(data: dict[str, Any]) -> Step:
    return Step(
        **{
            **data,
            "layers": tuple(data["layers"]),
            "args": _args(data["args"]),
            "operands": {k: (name, at) for k, (name, at) in data["operands"].items()},
            "reads": [_access(a) for a in data["reads"]],
            "writes": [_access(a) for a in data["writes"]],
            "plans": tuple(_plan(p) for p in data["plans"]),
            "bands": tuple(
                Band(band["plan"], tuple(End(**e) for e in band["ends"])) for band in data["bands"]
            ),
        }
    )


def _plan(data: dict[str, Any]) -> Plan:
    return Plan(
        **{
            **data,
            "shapes": _tuples(data["shapes"]),
            "steps": [_step(s) for s in data["steps"]],
            "buffers": {k: Buffer(**v) for k, v in data["buffers"].items()},
            "consts": {
                k: Const(v["name"], v["recipe"], tuple(v["keys"]), _tuples(v["args"]))
                for k, v in data["consts"].items()
            },
            "values": {k: _view(v) for k, v in data["values"].items()},
            "inputs": [_view(v) for v in data["inputs"]],
            "outputs": [_view(v) for v in data["outputs"]],
            "flags": [(layer, text) for layer, text in data["flags"]],
        }
    )
