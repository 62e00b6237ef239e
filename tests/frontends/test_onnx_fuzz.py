"""Mutated ONNX files: each gives a bslite error, or a model that runs. Never another exception, a crash, a
hang, or memory that grows.
"""

import resource
import time
import warnings
from typing import Any

import numpy as np
import pytest
from support.onnx_models import SMALL, onnx

from bslite import BsliteError, ModelSpec, from_onnx, run
from bslite.onnx.model import OnnxModel

pytestmark = pytest.mark.fuzz

FILES = 2400  # in all
SECONDS = 10.0  # at most for one file
MEMORY = 2**30  # bytes that the process may grow by over all of them
LARGEST = 2**20  # elements of an input, and of all values, that is still run
WILD = (0, 1, -1, 2, 3, -2, 7, 255, 2**31 - 1, 2**31, -(2**31), 2**62, -(2**63), 2**63 - 1)


def flipped(data: bytes, rng: np.random.Generator) -> bytes:
    """Bytes changed, cut out, put in, or the end cut off."""
    made = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        at, way = int(rng.integers(len(made))), rng.random()
        if way < 0.4:
            made[at] = int(rng.integers(256))
        elif way < 0.85:
            made[at] ^= 1 << int(rng.integers(8))
        elif way < 0.9:
            del made[at : at + int(rng.integers(1, 9))]
        elif way < 0.95:
            made[at:at] = bytes(rng.integers(0, 256, int(rng.integers(1, 9)), np.uint8))
        else:
            del made[max(1, at) :]
    return bytes(made)


def messages(proto: Any, found: list[Any] | None = None) -> list[Any]:
    """The message and all those inside it."""
    found = [] if found is None else found
    found.append(proto)
    for field, content in proto.ListFields():
        if field.message_type is not None:
            several = not hasattr(content, "ListFields")
            for inner in content if several else [content]:
                messages(inner, found)
    return found


def meddled(data: bytes, rng: np.random.Generator, words: list[str]) -> bytes:
    """Fields of messages changed: other numbers, other names, repeated, dropped, put from elsewhere."""
    model = onnx.load_from_string(data)
    for _ in range(int(rng.integers(1, 4))):
        everything = messages(model)
        proto = everything[int(rng.integers(len(everything)))]
        fields = list(proto.DESCRIPTOR.fields)
        field = fields[int(rng.integers(len(fields)))]
        try:
            meddle(proto, field, rng, words, everything)
        except (ValueError, TypeError, OverflowError):
            continue  # what the format itself cannot hold
    made: bytes = model.SerializeToString()
    return made


def meddle(proto: Any, field: Any, rng: np.random.Generator, words: list[str], everything: list[Any]) -> None:
    """Change one field of a message."""
    content = getattr(proto, field.name)
    repeated = hasattr(content, "append") or hasattr(content, "add")

    def scalar() -> Any:
        if field.cpp_type == field.CPPTYPE_STRING:
            if field.type == field.TYPE_BYTES:
                return bytes(rng.integers(0, 256, int(rng.integers(0, 40)), np.uint8))
            return words[int(rng.integers(len(words)))]
        if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
            return float(rng.choice([0.0, -1.0, np.nan, np.inf, 1e38, 1e-45]))
        return int(WILD[int(rng.integers(len(WILD)))])

    if field.message_type is not None:
        same = [m for m in everything if m.DESCRIPTOR is field.message_type and m is not proto]
        if repeated:
            if len(content) and rng.random() < 0.5:
                del content[int(rng.integers(len(content)))]
            elif same:
                content.add().CopyFrom(copied(same[int(rng.integers(len(same)))]))
        elif same and rng.random() < 0.7:
            content.CopyFrom(copied(same[int(rng.integers(len(same)))]))
        else:
            proto.ClearField(field.name)
    elif repeated:
        if len(content) and rng.random() < 0.7:
            content[int(rng.integers(len(content)))] = scalar()
        elif len(content) and rng.random() < 0.5:
            del content[int(rng.integers(len(content)))]
        else:
            content.append(scalar())
    else:
        setattr(proto, field.name, scalar())


def copied(proto: Any) -> Any:
    """A copy: a message put into itself ends the process."""
    made = type(proto)()
    made.CopyFrom(proto)
    return made


def vocabulary(data: bytes) -> list[str]:
    """Names that occur in a model, and some operators."""
    model = onnx.load_from_string(data)
    names = {i for n in model.graph.node for i in (*n.input, *n.output, n.op_type)}
    others = [
        "",
        "Loop",
        "Scan",
        "If",
        "Expand",
        "Tile",
        "Pad",
        "ConstantOfShape",
        "Range",
        "Resize",
        "Nothing",
    ]
    shapes = [
        "Reshape",
        "Squeeze",
        "Unsqueeze",
        "Slice",
        "Split",
        "Gather",
        "ConvTranspose",
        "OneHot",
        "TopK",
    ]
    return sorted(names) + others + shapes


def runnable(spec: ModelSpec) -> bool:
    """Whether running the model's example takes little."""
    shapes = spec.infer_shapes([i.example for i in spec.inputs])
    return sum(int(np.prod(s, dtype=np.float64)) for s in shapes.values()) <= LARGEST


def settled(made: OnnxModel) -> str:
    """As `attempt`, of a model whose sizes are those of its inputs."""
    shapes = [[n if isinstance(n, int) and n else 4 for n in i.shape or (2,)] for i in made.inputs]
    if any(np.prod(s, dtype=np.float64) > LARGEST for s in shapes):
        return "large"
    inputs = [np.ones(s, i.dtype) for s, i in zip(shapes, made.inputs, strict=True)]
    spec = made.settle(inputs).spec
    if spec is not None and not runnable(spec):
        return "large"
    run(made, inputs)
    return "ran"


def attempt(data: bytes, rng: np.random.Generator) -> str:
    """How it went: "ran", "large", or the name of the error."""
    try:
        spec = from_onnx(data)
        if isinstance(spec, OnnxModel):
            return settled(spec)
        if not runnable(spec):
            return "large"
        inputs = [
            rng.standard_normal(i.example).astype(np.float32)
            if i.dtype == "float32"
            else np.asarray(rng.integers(0, 2, i.example), i.dtype)
            for i in spec.inputs
        ]
        run(spec, inputs)
    except BsliteError as e:
        return type(e).__name__
    return "ran"


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("way", ["bytes", "fields"])
def test_mutated_files_are_errors_or_run(name: str, way: str) -> None:
    data = SMALL[name]().SerializeToString()
    words = vocabulary(data)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    went: dict[str, int] = {}
    for i in range(FILES // (2 * len(SMALL))):
        rng = np.random.default_rng([i, len(data), way == "bytes"])
        mutated = flipped(data, rng) if way == "bytes" else meddled(data, rng, words)
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcome = attempt(mutated, rng)
        assert time.process_time() - began < SECONDS, f"file {i} took too long"
        went[outcome] = went.get(outcome, 0) + 1
    print(went)
    assert went.get("ran", 0) > 5  # else the mutations are too coarse to reach what comes after the parser
    assert len(went) > 2
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory)
    assert grown < MEMORY, f"{grown / 2**20:.0f} MB more memory"
