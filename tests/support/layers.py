"""Layers with seeded parameters, put together by hand."""

from typing import Any

import numpy as np

from bslite.plan import Plan
from bslite.spec import GraphBuilder
from support.check import Array
from support.noise import noise
from support.plans import gpu_plan_of


class Model:
    """A graph with one input, "x"; methods take and give names of values."""

    def __init__(self, *shape: int) -> None:
        self.graph = GraphBuilder("model")
        self.x = self.graph.input("x", shape)
        self.count = 0

    def plan(self, *outputs: str, **how: Any) -> Plan:
        """For a GPU, a large one unless told."""
        spec = self.graph.build(*outputs)
        return gpu_plan_of(spec, *(given.example for given in spec.inputs), **how)

    def add(self, op: str, *inputs: str, params: dict[str, Array] | None = None, **attrs: Any) -> str:
        self.count += 1
        name = f"l{self.count}_{op}"
        keys = {role: f"{name}.{role}" for role in params or {}}
        self.graph.params.update({keys[role]: array for role, array in (params or {}).items()})
        return self.graph.add(op, name, *inputs, params=keys, **attrs)

    def conv(
        self, x: str, k: int, c: int, r: int = 1, bias: bool = True, op: str = "conv2d", **attrs: Any
    ) -> str:
        """From ``c`` channels to ``k``, by ``r`` taps along each axis; as large as x unless told."""
        each = c // attrs.get("groups", 1)
        shape = (each, k) if "transpose" in op else (k, each)
        weight = noise(*shape, *(r,) * int(op[-2]), seed=self.count) / np.float32(r * np.sqrt(each))
        params = {"weight": weight} | ({"bias": noise(k, seed=self.count + 1)} if bias else {})
        return self.add(op, x, params=params, padding=attrs.pop("padding", r // 2), **attrs)

    def linear(self, x: str, k: int, c: int, bias: bool = True) -> str:
        params = {"weight": noise(k, c, seed=self.count)} | (
            {"bias": noise(k, seed=self.count + 1)} if bias else {}
        )
        return self.add("linear", x, params=params)

    def norm(self, x: str, c: int) -> str:
        names = ("weight", "bias", "running_mean", "running_var")
        params = {role: noise(c, seed=self.count + i) for i, role in enumerate(names)}
        params["running_var"] = np.abs(params["running_var"]) + np.float32(0.3)
        return self.add("batch_norm", x, params=params, eps=1e-5)
