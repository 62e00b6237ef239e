"""A model in a worker of Ray: opened there once, from whatever the worker was given."""

import os
import socket
import sys
from pathlib import Path
from typing import Any

from bslite.compiled import CompiledModel, compile
from bslite.errors import FileError, InputError


def opened(model: Any, threads: int | None) -> CompiledModel:
    """``model`` ready to run in this process; a reference to Ray's object store is what it refers to.

    Without ``threads`` there are as many as the CPUs that Ray gives to the worker, rounded down, but at least
    one: Ray sets OMP_NUM_THREADS. Raises what `bslite.compile` raises, InputError for a torch module;
    FileError says on which machine.
    """
    ray = sys.modules.get("ray")
    if ray is not None and isinstance(model, ray.ObjectRef):
        model = ray.get(model)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        raise InputError(
            f"{type(model).__name__} is a torch module, which names no sizes: give bslite.from_torch(module, "
            "example)"
        )
    try:
        return compile(model, threads=threads)
    except FileError as e:
        if not isinstance(model, (str, os.PathLike)):
            raise
        raise FileError(
            f"{e}; a worker on {socket.gethostname()} looked for it, from {Path.cwd()}: where workers cannot "
            "read the file, give bslite.load(path), or an ONNX file's bytes"
        ) from None
