"""The commands, collected."""

import typer

from bslite.cli import (
    bench,
    calibrate,
    demo,
    explain,
    explore,
    info,
    run,
    serve,
    stream,
    try_model,
    tune,
    verify,
    warmup,
)

app = typer.Typer(
    help="Neural network inference on the CPU: a fast Numba engine, checked against a plain NumPy reference.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("try")(try_model.try_model)  # "try" is a keyword of Python
for command in (
    demo.demo,
    run.run,
    verify.verify,
    bench.bench,
    stream.stream,
    serve.serve,
    explain.explain,
    explore.explore,
    tune.tune,
    info.info,
    calibrate.calibrate,
    warmup.warmup,
):
    app.command()(command)
