"""``bslite warmup``: compile now what would otherwise be compiled on first use."""

from typing import Annotated

import numpy as np
import typer

from bslite.cli import options
from bslite.cli.inputs import make_inputs
from bslite.cli.progress import activity
from bslite.spec import ModelSpec


def warmup(
    model: options.ModelFile = None,
    arch: options.Arch = None,
    shape: options.InputShape = None,
    batch: options.Batch = None,
    everything: Annotated[
        bool, typer.Option("--all", help="For every named architecture, at batch 1 and 16.")
    ] = False,
) -> None:
    """Compile the kernels a model needs, and keep them on disk. Without a model: those common to all."""
    from bslite.api import run
    from bslite.engines import cpu
    from bslite.frontends.weights import architectures

    if everything and (model or arch):
        raise typer.BadParameter("--all takes no model")
    with activity("Compiling kernels"):
        from bslite.kernels.cpu.runtime.compile import compiled

        before = len(compiled)
        if everything:
            for name in architectures.NAMES:
                spec = hollow(name)
                for n in (1, 16):
                    cpu.warmup(spec, [(n, *i.example[1:]) for i in spec.inputs])
        elif model or arch:
            made = hollow(arch) if arch and not model else options.load_model(model, arch)
            inputs = make_inputs(made, None, shape, batch, 0)
            if isinstance(made, ModelSpec):
                cpu.warmup(made, [x.shape for x in inputs])
            else:
                run(made, inputs)
        else:
            cpu.warmup()
    typer.echo(f"{len(compiled) - before} kernels compiled; the others were ready")


def hollow(arch: str) -> ModelSpec:
    """A named architecture with weights of zeros: kernels are chosen by shapes, not by values."""
    from bslite.frontends.weights import architectures
    from bslite.frontends.weights.state_dict import from_state_dict

    net, _ = architectures.get(arch).describe()
    return from_state_dict(arch, {key: np.zeros(shape, np.float32) for key, shape in net.wanted.items()})
