"""The bytes that ops move at least, where these are fewer than their operands have."""

from typing import Any

import pytest

from bslite import ops

Shapes = list[tuple[int, ...]]


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "elements"),
    [
        ("gather", [(30000, 64), (2, 7)], {}, 2 * 14 * 64 + 14),
        ("gather", [(3, 64), (2, 7)], {}, 3 * 64 + 14 * 64 + 14),
        ("gather_elements", [(5, 100), (5, 2)], {"axis": 1}, 3 * 10),
        ("slice", [(8, 100)], {"axis": 1, "stop": 3}, 2 * 24),
        ("tanh", [(8, 100)], {}, 2 * 800),
    ],
)
def test_only_what_is_read_counts(op: str, inputs: Shapes, attrs: dict[str, Any], elements: int) -> None:
    declared = ops.get(op)
    parsed = ops.parse_attrs(declared, attrs)
    assert declared.traffic(inputs, ops.infer(declared, inputs, {}, parsed), {}, parsed) == 4 * elements
