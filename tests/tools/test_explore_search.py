"""Design-space search: problems, spaces, and the order in which a search ranks points."""

from typing import Any

import pytest

from bslite.errors import EngineError, SpecError
from bslite.explore import Axis, Constraint, Estimate, Part, Point, Recurrent, Space, deepbench, search
from bslite.explore.problem import KINDS


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden": 0}, "hidden must be a whole number from 1 up, got 0"),
        ({"inputs": -3}, "inputs must be"),
        ({"steps": 2.5}, "steps must be a whole number from 1 up, got 2.5"),
        ({"batch": True}, "batch must be"),
        ({"layers": "2"}, "layers must be a whole number from 1 up, got '2'"),
        ({"kind": "elman"}, "kind is 'elman', expected one of lstm, gru, rnn"),
    ],
)
def test_a_wrong_problem_is_told(change: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        Recurrent(**{"kind": "lstm", "hidden": 8, "inputs": 4, "steps": 3, "batch": 2, **change})


@pytest.mark.parametrize("op", KINDS.values(), ids=KINDS)
def test_work_is_what_the_op_declares(op: Any) -> None:
    problem = Recurrent(op.name, 24, 7, 5, 3)
    rows = op.gates * 24
    params = {"weight_ih": (rows, 7), "weight_hh": (rows, 24)}
    x, out = (5, 3, 7), (5 + op.states, 3, 24)
    assert problem.flops == op.flops([x], out, params, {})
    assert (problem.gates, problem.states) == (op.gates, op.states)
    assert problem.weight_bytes == 4 * rows * (7 + 24)
    assert problem.recurrent_weight_bytes == 4 * rows * 24


def test_layers_add_up() -> None:
    problem = Recurrent("gru", 16, 5, 9, 2, layers=3)
    each = [problem.layer(i) for i in range(3)]
    assert [layer.inputs for layer in each] == [5, 16, 16]
    assert problem.weights == sum(layer.weights for layer in each)
    assert problem.flops == sum(layer.flops for layer in each)
    assert str(problem) == "gru 16, 5 inputs, 9 steps, batch 2, 3 layers"


def test_deepbench_list() -> None:
    every = deepbench.server_list()
    assert len(every) == len(set(every)) == 23 * 3
    assert all(p.inputs == p.hidden and p.layers == 1 for p in every)
    assert Recurrent("gru", 2560, 2560, 187, 4) in every
    few = deepbench.distinct((1, 2))
    assert len(few) == 22
    assert {(p.kind, p.hidden) for p in few} == {(p.kind, p.hidden) for p in every}
    assert all(p.steps == 1500 for p in few if p.kind == "gru" and p.hidden > 512)


def small_space(*constraints: Constraint) -> Space:
    return Space(
        "toy", (Axis("size", "how large", (1, 2, 3)), Axis("way", "which way", ("up", "down"))), constraints
    )


ODD = Constraint("sizes are odd", lambda p: None if p.number("size") % 2 else f"{p['size']} is even")


def test_points_come_in_the_order_of_the_axes() -> None:
    assert [str(p) for p in small_space(ODD).points()] == [
        "size=1 way=up", "size=1 way=down", "size=3 way=up", "size=3 way=down",
    ]  # fmt: skip
    assert len(small_space(ODD)) == 6
    text = str(small_space(ODD))
    for part in ("toy: 6 points", "size  1..3  (how large)", "way   up down", "- sizes are odd"):
        assert part in text


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"size": 1}, "no value given for way"),
        ({"size": 1, "way": "up", "colour": 3}, "unknown 'colour'; its axes: size, way"),
        ({"size": 0, "way": "up"}, "size is 0, expected a whole number from 1 up"),
        ({"size": "1", "way": "up"}, "size is '1', expected a whole number"),
        ({"size": True, "way": "up"}, "size is True, expected a whole number"),
        ({"size": 1, "way": "left"}, "way is 'left', expected one of up down"),
        ({"size": 2, "way": "up"}, "does not fit. sizes are odd: 2 is even"),
    ],
)
def test_a_wrong_point_is_told(values: dict[str, Any], said: str) -> None:
    with pytest.raises(EngineError, match=said):
        small_space(ODD).point(values)


def test_a_point_may_lie_between_the_values_listed() -> None:
    point = small_space(ODD).point({"size": 7, "way": "up"})
    assert point.number("size") == 7
    assert point.as_dict() == {"size": 7, "way": "up"}
    with pytest.raises(EngineError, match="no axis 'colour'"):
        point["colour"]
    with pytest.raises(EngineError, match="'up', not a whole number"):
        point.number("way")


@pytest.mark.parametrize("values", [(), (1, 1)])
def test_an_axis_has_values_that_differ(values: tuple[int, ...]) -> None:
    with pytest.raises(EngineError, match="axis 'size'"):
        Axis("size", "how large", values)


class Toy:
    """An explorer whose points cost what a table says."""

    def __init__(self, seconds: dict[str, float], *constraints: Constraint) -> None:
        self.seconds, self.constraints = seconds, constraints

    def space(self, problem: Recurrent, machine: None) -> Space:
        return small_space(*self.constraints)

    def estimate(self, problem: Recurrent, machine: None, point: Point) -> Estimate:
        known = self.seconds.get(str(point), 9.0)
        return Estimate(point, (Part("work", known - 1), Part("wait", 1.0), Part("loads", 5.0, hidden=True)))


PROBLEM = Recurrent("rnn", 4, 4, 1, 1)


def test_the_cheapest_first_and_ties_in_the_order_of_the_space() -> None:
    found = search(Toy({"size=3 way=up": 2.0, "size=2 way=down": 4.0}), PROBLEM, None)
    assert [str(e.point) for e in found.ranked] == [
        "size=3 way=up", "size=2 way=down",
        "size=1 way=up", "size=1 way=down", "size=2 way=up", "size=3 way=down",
    ]  # fmt: skip
    assert found.best.seconds == 2.0
    figures = found.as_dict(top=1)
    assert figures["ranked"][0]["parts"] == {"work": 1.0, "wait": 1.0}
    assert figures["ranked"][0]["hidden"] == {"loads": 5.0}


def test_a_difference_in_the_thirteenth_digit_is_a_tie() -> None:
    found = search(Toy({"size=1 way=up": 3.0 + 1e-14, "size=3 way=down": 3.0}), PROBLEM, None)
    assert str(found.best.point) == "size=1 way=up"


def test_what_is_ruled_out_is_counted() -> None:
    found = search(Toy({}, ODD), PROBLEM, None)
    assert found.ruled_out == {"sizes are odd": 2}
    never = Constraint("nothing will do", lambda p: f"not even {p}")
    with pytest.raises(EngineError, match=r"none of 6 points of toy.*\(6\).*not even size=1 way=up"):
        search(Toy({}, never), PROBLEM, None)
