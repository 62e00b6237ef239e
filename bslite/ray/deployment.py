"""`deployment`: a model as an application of Ray Serve."""

import os
import sys
from collections.abc import Mapping
from typing import Any

from bslite.api import check_threads
from bslite.compiled import compile
from bslite.compiled.rows import check_rows
from bslite.errors import EngineError, InputError
from bslite.ray.batching import Batching
from bslite.spec import Array, ModelSpec

MOST_BYTES = 128 << 20  # of a model that is sent with its application, not read from a file


def deployment(
    model: Any,
    *,
    name: str = "bslite",
    num_replicas: int | str | None = None,
    num_cpus: float = 1,
    max_batch_size: int = 16,
    batch_wait_timeout_s: float = 0.002,
    threads: int | None = None,
    example: Mapping[str, Array] | None = None,
    **options: Any,
) -> Any:
    """A Serve application of one deployment, for ``serve.run`` or another deployment's ``bind``::

        handle = serve.run(bslite.ray.deployment("/models/net.onnx", num_replicas=2, num_cpus=2))
        handle.remote(x).result()["logits"]  # called as bslite.compile's model, with the same results

    By HTTP it speaks the Open Inference Protocol (V2): ``POST ROUTE/v2/models/NAME/infer``.

    ``model``: a `ModelSpec`, the path of a model file, an ONNX model's bytes or ``ModelProto``; each replica
    opens it once. A path is read by the replicas. All else becomes part of the application, which Serve's
    controller keeps: at most `MOST_BYTES`. A reference from ``ray.put`` lasts only as long as the program
    that put it; a replica that starts later fails.

    Requests that come while the model computes are computed together, up to ``max_batch_size`` rows (axis 0);
    a replica at rest waits for others for ``batch_wait_timeout_s`` seconds. An answer has the bits of a
    request alone. A model that does not take rows, or mixes them, needs ``max_batch_size=1``. Both may change
    while it runs: ``user_config={"max_batch_size": ..., "batch_wait_timeout_s": ...}``.

    ``num_cpus``: of each replica, and, unless ``threads`` says otherwise, its threads, rounded down, at least
    one. ``example``: see `bslite.compiled.rows.Rows`. ``options`` are those of ``serve.deployment``; by
    default a replica takes twice as many requests as go into a batch.

    Raises EngineError if Ray Serve is not installed, InputError for a model that cannot be sent or a setting
    that is wrong, and what `bslite.compile` raises of a model that is sent. A file that is missing and a
    model that mixes rows are errors of the replicas: ``serve.run`` raises RuntimeError, ``serve.status`` says
    why.
    """
    serve = load_serve()
    check_threads(threads)
    from bslite.ray.replica import Replica

    given = Batching(max_batch_size, batch_wait_timeout_s)
    batching = given.changed(options.pop("user_config", None))
    sent = _sent(model, batching)
    options["ray_actor_options"] = {"num_cpus": num_cpus, **options.get("ray_actor_options", {})}
    chosen = {
        "name": name,
        "num_replicas": num_replicas,
        "max_ongoing_requests": 2 * batching.max_batch_size,
        "user_config": batching.config(),
        **options,
    }
    return serve.deployment(Replica).options(**chosen).bind(sent, threads, example)


def _sent(model: Any, batching: Batching) -> Any:
    """What replicas are given. InputError for what cannot be sent, or is too large to be; what is wrong with
    the model, so far as it tells without computing.
    """
    ray = sys.modules["ray"]
    if isinstance(model, (str, os.PathLike, ray.ObjectRef)):
        return model
    if type(model).__name__ == "ModelProto":
        model = model.SerializeToString()
    if isinstance(model, ModelSpec):
        size, what = sum(array.nbytes for array in model.params.values()), repr(model)
    elif isinstance(model, bytes):
        size, what = len(model), "the ONNX model"
    else:
        raise InputError(
            f"deployment() takes a ModelSpec, the path of a model file or an ONNX model's bytes, got "
            f"{type(model).__name__}; of a torch module, give bslite.from_torch(module, example), of what "
            "from_onnx returned, what it was read from"
        )
    if size > MOST_BYTES:
        raise InputError(
            f"{what} has {size >> 20} MB, and Serve's controller would keep a copy; at most "
            f"{MOST_BYTES >> 20} are sent: save it where all nodes read it (bslite.save), and give the path"
        )
    compiled = compile(model)
    if batching.max_batch_size > 1:
        check_rows(compiled)
    return model


def load_serve() -> Any:
    """The module ``ray.serve``; EngineError saying how to install it if there is none."""
    try:
        from ray import serve
    except ImportError as e:
        raise EngineError(f"bslite.ray.deployment needs Ray Serve ({e}): pip install 'bslite[ray]'") from e
    return serve
