"""bslite behind ONNX's own interface of a backend: ``prepare(model).run(inputs)``, ``run_model`` and so on.

    from bslite.onnx import backend
    outputs = backend.prepare(model).run([x])

Where an operator needs an input's value when the model is made (the ``shape`` of a Reshape, the weights of a
convolution, given as inputs), the model is specialised on the value it is given, anew for each new one.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bslite.errors import InputError, UnsupportedError
from bslite.frontends.common.lazy import load_onnx
from bslite.frontends.onnx.file import read_model
from bslite.onnx.mixed import MixedRep
from bslite.onnx.rep import base
from bslite.onnx.running import Options
from bslite.spec import Array

__all__ = ["Backend", "prepare", "run_model", "run_node", "supports_device"]


class Backend(base.Backend):
    """ONNX's interface of a backend, on the CPU engine."""

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> Any:
        """``model`` (ModelProto, path or bytes) ready to run. UnsupportedError for another device.

        ``fallback``: ``"error"`` raises UnsupportedError when a model uses what bslite does not have; with
        ``"warn"`` or ``"silent"`` those nodes run in ONNX's reference evaluator, see `bslite.onnx.running`.
        """
        fallback = kwargs.get("fallback", "error")
        if fallback not in ("error", "warn", "silent"):
            raise InputError(f"fallback {fallback!r} is not one of 'error', 'warn', 'silent'")
        if not cls.supports_device(device):
            raise UnsupportedError(f"device {device!r}; bslite's ONNX backend runs on the CPU")
        source, backend = read_model(model), kwargs.get("backend", "cpu")
        return MixedRep(source, Options(backend, None, fallback))

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Array, ...]:
        """The outputs of ``model`` for ``inputs``."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: Any, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Array, ...]:
        """The outputs of one node, as a model of its own in the newest opset or ``opset_version``."""
        helper, onnx = load_onnx().helper, load_onnx()
        names = [n for n in node.input if n]
        arrays = [np.asarray(x) for x in (inputs.values() if isinstance(inputs, Mapping) else inputs)]
        if len(names) != len(arrays):
            raise InputError(f"node {node.op_type} reads {len(names)} values, got {len(arrays)}")
        given = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for n, x in zip(names, arrays, strict=True)
        ]
        made = [onnx.ValueInfoProto(name=n) for n in node.output if n]
        version = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        graph = helper.make_graph([node], node.op_type, given, made)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, version)])
        return cls.run_model(model, arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether ``device`` is the CPU."""
        return device.split(":")[0] == "CPU"


prepare = Backend.prepare
run_model = Backend.run_model
run_node = Backend.run_node
supports_device = Backend.supports_device
