"""The command on serving: its client, what it makes of answers, what it writes."""

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("uvicorn")

from benchmarks import output
from benchmarks.plot import DRAWINGS
from benchmarks.serving.command import Result, cases, main, markdown, merged
from benchmarks.serving.load import Client, Taken, closed, poisson, request
from benchmarks.serving.server import Case, close

X = np.arange(6, dtype=np.float32).reshape(1, 6)
HEADER: dict[str, Any] = {
    "benchmark": "serving", "date": "2026-01-01", "commit": "c",
    "options": {"seconds": 1.0, "queue": 4, "threads": 2},
    "machine": {"cpu": "some CPU", "cores": 2}, "versions": {"python": "3"},
}  # fmt: skip


async def answered(statuses: list[int], load: Any) -> tuple[Taken, list[bytes]]:
    """What ``load`` makes of a server that gives these statuses in turn and the request's own tensor back."""
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            fields = dict(line.split(": ") for line in head.decode().split("\r\n")[1:] if line)
            body = await reader.readexactly(int(fields["Content-Length"]))
            seen.append(body[int(fields["Inference-Header-Content-Length"]) :])
            status = statuses[(len(seen) - 1) % len(statuses)]
            answer = b"{}" + seen[-1]
            writer.write(
                f"HTTP/1.1 {status} X\r\nInference-Header-Content-Length: 2\r\n"
                f"Content-Length: {len(answer)}\r\n\r\n".encode()
                + answer
            )

    async def quiet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(quiet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = Client(port, [request(X), request(X + 1)], lambda k, raw: raw == (X + k).tobytes())
    taken = await load(client)
    client.close()
    server.close()
    await asyncio.sleep(0.01)
    return taken, seen


def test_random_arrivals_are_counted_by_what_becomes_of_them() -> None:
    taken, seen = asyncio.run(answered([200, 429, 500], lambda c: poisson(c, 300, 0.5, seed=3)))
    assert taken.sent == len(seen) > 75
    assert len(taken.latencies) + taken.shed + taken.failed == taken.sent
    assert abs(taken.shed - taken.sent / 3) <= 1
    assert abs(taken.failed - taken.sent / 3) <= 1
    assert taken.wrong == 0
    assert min(taken.latencies) > 0


def test_a_wrong_answer_is_seen() -> None:
    async def load(client: Client) -> Taken:
        client._right = lambda k, raw: False
        return await closed(client, 2, 0.1)

    taken, seen = asyncio.run(answered([200], load))
    assert taken.wrong == len(taken.latencies) == len(seen) > 2


def test_nobody_listens() -> None:
    async def load() -> Taken:
        return await poisson(Client(1, [request(X)], lambda k, raw: True), 200, 0.1, seed=0)

    taken = asyncio.run(load())
    assert taken.failed == taken.sent > 5


def test_answers_of_another_engine_are_near() -> None:
    assert close(X, X * (1 + 1e-6))
    assert not close(X, X * 1.01)
    assert not close(X, X[:, :3])


def results() -> list[Result]:
    made = []
    for number in (1, 2, 3):
        for case in cases(("bslite", "onnxruntime"), 2, 8):
            for load in (0.5, 3.0):
                one = Result("perceptron", vars(case), load, 100 * load, number, sent=100)
                one.p50, one.p99, one.cpu, one.rows = 0.001 * number, 0.002 * number, 0.003, 1.5
                one.answered, one.shed = 50.0, 0.25
                made.append(one)
    return made


def test_rounds_become_medians_and_a_table() -> None:
    together = merged(results())
    assert len(together) == 16
    assert {(r.p50, r.p99, r.round) for r in together} == {(0.002, 0.004, 3)}
    text = markdown(results(), None, HEADER)
    assert "**perceptron, load 3: 300 requests a second**" in text
    assert "| bslite | 2×1 | on | 50 | 2.0 | 4.0 | 3.0 | 1.5 | 25 % |" in text
    assert "medians of 3 round(s)" in text
    assert "What failed" not in text
    wrong = results()
    wrong[0].failures = {"a case": "1 of 100 answers are wrong"}
    assert "perceptron, load 0.5, a case: 1 of 100 answers are wrong" in markdown(wrong, None, HEADER)


def test_the_picture_has_a_panel_for_each_way() -> None:
    data = json.loads(json.dumps(output.as_dict(results(), None, HEADER)))
    drawn = DRAWINGS["serving"](data)
    titles = [axis.get_title() for axis in drawn.axes]
    assert titles == ["perceptron, 1 run of 2 threads", "perceptron, 2 runs of 1 thread"]
    assert [len(axis.lines) for axis in drawn.axes] == [4, 4]


def test_cases_share_the_threads() -> None:
    assert cases(("bslite",), 2, 8) == [Case("bslite", s, t, b) for s, t in ((1, 2), (2, 1)) for b in (1, 8)]


@pytest.mark.processes
def test_a_whole_run_and_a_round_more(tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    how = [
        "--nets",
        "perceptron",
        "--engines",
        "bslite",
        "--threads",
        "1",
        "--loads",
        "0.5",
        "--seconds",
        "0.3",
    ]
    for seed in ("1", "2"):
        assert (
            main([*how, "--seed", seed, "--resume", "--json", str(file), "--md", str(tmp_path / "s.md")]) == 0
        )
    found = json.loads(file.read_text())["results"]
    assert [r["round"] for r in found] == [1, 1, 2, 2]
    assert len({r["rate"] for r in found}) == 1
    assert all(r["failures"] == {} and r["p99"] >= r["p50"] > 0 and r["price"]["1"] > 0 for r in found)
