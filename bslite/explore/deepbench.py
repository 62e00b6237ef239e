"""DeepBench's recurrent inference problems for servers, as data.

Source: the table ``inference_server_set`` of ``code/kernels/rnn_problems.h`` in Baidu's DeepBench. Its
problems have as many inputs as hidden units and one layer.
"""

from bslite.explore.problem import Recurrent

BATCHES = (1, 2, 4)
LSTM = ((512, 25), (1024, 25), (2048, 25), (1536, 50), (256, 150))  # (hidden, steps)
GRU = (
    *((hidden, steps) for hidden in (2816, 2048, 1536, 2560) for steps in (1500, 750, 375, 187)),
    (512, 1),
    (1024, 1500),
)


def server_list(batches: tuple[int, ...] = BATCHES) -> list[Recurrent]:
    """The 23 problems, in DeepBench's order, each at every batch."""
    return [
        Recurrent(kind, hidden, hidden, steps, batch)
        for kind, sizes in (("lstm", LSTM), ("gru", GRU))
        for hidden, steps in sizes
        for batch in batches
    ]


def distinct(batches: tuple[int, ...] = BATCHES) -> list[Recurrent]:
    """The problems that differ in more than the number of steps: the longest of each kind, size and batch.

    A time step costs the same whatever their number, so these eleven at each batch stand for all.
    """
    longest: dict[tuple[str, int, int], Recurrent] = {}
    for problem in server_list(batches):
        key = (problem.kind, problem.hidden, problem.batch)
        if key not in longest or longest[key].steps < problem.steps:
            longest[key] = problem
    return list(longest.values())
