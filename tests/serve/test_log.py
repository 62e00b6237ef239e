"""The log's own thread: nobody waits for it, nothing is lost without a word."""

import io
import os
import sys
import threading
from collections.abc import Iterator

import pytest

pytest.importorskip("starlette")

from bslite.serve.log import Lines, log


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_lines_arrive_in_order(pipe: tuple[int, int]) -> None:
    lines = Lines(pipe[1])
    for i in range(500):
        lines(f"line {i} \udcff")
    lines.close()
    assert os.read(pipe[0], 1 << 20).decode().splitlines() == [f"line {i} \\udcff" for i in range(500)]


def test_what_is_dropped_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lines, "MOST", 10)
    end, start = os.pipe()
    lines = Lines(start)
    for _ in range(1000):
        lines("x" * 1000)  # a pipe holds 64 of them
    read: list[bytes] = []
    reader = threading.Thread(
        target=lambda: read.extend(iter(lambda: os.read(end, 1 << 16), b"")), daemon=True
    )
    reader.start()
    lines.close(20)
    os.close(start)
    reader.join(20)
    os.close(end)
    text = b"".join(read).decode()
    said = [int(t.split()[1].strip('"')) for t in text.splitlines() if "dropped" in t]
    assert text.count("x" * 1000) + sum(said) == 1000
    assert said


def test_a_pipe_that_does_not_block_loses_nothing(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[1], False)
    lines = Lines(pipe[1])
    for i in range(50):
        lines(f"{i:02}" + "x" * 9000)
    read = b""
    while read.count(b"\n") < 50:
        read += os.read(pipe[0], 1 << 16)
    lines.close()
    assert [line[:2] for line in read.decode().splitlines()] == [f"{i:02}" for i in range(50)]


@pytest.mark.parametrize("stderr", [None, io.StringIO()])
def test_a_stderr_that_is_no_file(stderr: io.StringIO | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    with log() as out:
        out("told")
    assert stderr is None or stderr.getvalue() == "told\n"
