"""What the terminal shows while something takes long. On stderr, so that stdout holds only results."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

notes = Console(stderr=True, highlight=False)


@contextmanager
def activity(title: str) -> Iterator[None]:
    """A spinner while the body runs, with the kernels compiled so far; one plain line off a terminal."""
    if not notes.is_terminal:
        notes.print(f"{title} ...")
    with notes.status(f"{title} ...") as status:
        from bslite.kernels.cpu.runtime import (
            compile as kernels,  # after the spinner started: importing takes a while
        )

        fresh: list[str] = []

        def show(name: str, from_cache: bool) -> None:
            if not from_cache:
                fresh.append(name)
                status.update(
                    f"{title}: compiling kernels, once on this machine: {len(fresh)} done, last {name}"
                )

        kernels.on_ready.append(show)
        try:
            yield
        finally:
            kernels.on_ready.remove(show)
    if fresh:
        notes.print(f"compiled {len(fresh)} kernels")


@contextmanager
def steps(title: str, total: int) -> Iterator[Callable[[str], None]]:
    """A bar of ``total`` steps; call what is yielded with the name of each step as it is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    if not notes.is_terminal:
        notes.print(f"{title} ...")
    with Progress(*columns, console=notes, transient=True, disable=not notes.is_terminal) as bar:
        task = bar.add_task(title, total=total)
        yield lambda name: bar.update(task, advance=1, description=f"{title}: {name}")
