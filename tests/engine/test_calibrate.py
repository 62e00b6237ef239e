"""Measuring the machine: what is measured is plausible, kept, taken up, and changes no bit of a result."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.graphs import network as random_network
from support.noise import noise
from support.process import printed

import bslite
from bslite.engines.cpu import calibrate, calibration, description, detect, stream, unit
from bslite.engines.cpu.threads import available_cores, numba_threads
from bslite.errors import EngineError
from bslite.kernels.cpu.vector import target
from bslite.machine import LEVELS, Machine, Rates
from bslite.spec import ModelSpec

#: A machine nobody here has, as one would write it down.
BY_HAND = """{
 "threads": 48, "lanes": 8, "registers": 16, "l1": 32768, "l2": 2097152, "l3": 94371840,
 "fma_ports": 2, "l2_bytes_per_cycle": 48, "l3_bytes_per_cycle": 12.5, "memory_bytes_per_cycle": 1.5
}"""


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(calibration, "machines_dir", lambda: tmp_path / "machines")
    calibration.kept.cache_clear()
    yield
    calibration.kept.cache_clear()


def made_up(**rates: float) -> calibration.Calibration:
    """A calibration of this machine with invented rates."""
    blank = calibration.unmeasured()
    usual = (
        dict.fromkeys(dataclasses.asdict(blank.one), 1e11) | {"clock": 3e9, "tiles": 0.0, "dots": 0.0} | rates
    )
    one = Rates(**{**usual, "threads": 1})
    most = {k: v if k in ("clock", "threads") else v * blank.cores for k, v in usual.items()}
    return dataclasses.replace(blank, date="2026", one=one, all=Rates(**{**most, "threads": blank.cores}))


def test_measured_rates_are_plausible() -> None:
    found = calibrate.measure(seconds=0.05)
    for rates, threads in ((found.one, 1), (found.all, found.cores)):
        assert rates.threads == threads
        assert 0.3e9 < rates.clock < 10e9
        assert all(1e8 < rates.read(level) < 1e14 and 1e8 < rates.copy(level) < 1e14 for level in LEVELS)
        # No core has more than 4 ports for multiply-adds, nor for loads; disturbed, both may look slower.
        assert 0 < rates.flops / (2 * found.lanes * threads) < 4.5 * rates.clock
    assert found.one.read("l1") > found.one.read("memory")


def test_working_sets_grow_level_by_level() -> None:
    for machine in (Machine(), Machine(l2=256 << 10, l3=8 << 20), Machine(l2=2 << 20, l3=512 << 20)):
        for threads in (1, 2, 48):
            sizes = list(calibrate.working_sets(machine, threads).values())
            assert all(size % 4096 == 0 for size in sizes)
            assert threads * sizes[3] <= calibrate.MOST_MEMORY
            assert sizes[0] < machine.l1 < sizes[1] < machine.l2 < sizes[2]
            assert threads > 2 or sizes[2] < sizes[3]


def test_kept_and_taken_up() -> None:
    assert calibration.load() is None
    plain = detect.detect(1)
    assert plain.measured is None
    kept = made_up(l3_read=0.6e11)
    target = calibration.save(kept)
    assert target == calibration.path()
    assert calibration.load() == kept
    machine = detect.detect(1)
    assert machine == calibration.calibrated(plain, kept)
    assert machine.measured == kept.one
    assert machine.l3_bytes_per_cycle == pytest.approx(0.6 * machine.l2_bytes_per_cycle, rel=0.05)
    assert calibration.forget()
    assert not calibration.forget()
    assert detect.detect(1) == plain


def test_a_run_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise AssertionError("measured in the middle of a run")

    monkeypatch.setattr(calibrate, "measure", fail)
    spec, x = network()
    bslite.run(spec, x)
    assert not calibration.machines_dir().exists()


def test_a_disturbed_measurement_is_known_as_one() -> None:
    kept = dataclasses.replace(made_up(), cores=2)
    assert not dataclasses.replace(kept, all=dataclasses.replace(kept.one, threads=2, flops=1e11)).disturbed
    lost = dataclasses.replace(kept, all=dataclasses.replace(kept.one, threads=2, flops=1e9))
    assert lost.disturbed
    assert dataclasses.replace(kept, all=dataclasses.replace(kept.one, threads=2, l3_read=1e9)).disturbed
    # Multiply-adds that came to a standstill do not make the caches look fast.
    plain = description.described(2)
    assert calibration.calibrated(plain, lost).l2_bytes_per_cycle <= 2 * plain.lanes * 4


def test_threads_share_what_all_were_measured_at() -> None:
    kept = made_up()
    kept = dataclasses.replace(
        kept, cores=8, all=dataclasses.replace(kept.one, threads=8, memory_read=3e11, l2_read=8e11, clock=2e9)
    )
    three = calibration.at_threads(kept, 3)
    assert three.threads == 3
    assert three.clock == 2e9
    assert three.memory_read == pytest.approx(3e11)
    assert three.l2_read == pytest.approx(3e11)
    assert calibration.at_threads(kept, 4).memory_read == pytest.approx(3e11)
    assert calibration.at_threads(kept, 4).l2_read == pytest.approx(4e11)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"format": 99}', "{broken", b"\xff\xfe", "wrong machine", "wrong number"]
)
def test_a_file_of_no_use_is_a_warning(content: str | bytes) -> None:
    target = calibration.save(made_up())
    data = json.loads(target.read_text())
    if content == "wrong machine":
        content = json.dumps({**data, "cpu": "another"})
    elif content == "wrong number":
        content = json.dumps({**data, "one": {**data["one"], "l2_read": -1.0}})
    target.write_bytes(content.encode() if isinstance(content, str) else content)
    calibration.kept.cache_clear()
    with pytest.warns(RuntimeWarning, match="bslite calibrate"):
        machine = detect.detect(1)
    assert machine == description.described(1)


def network() -> tuple[ModelSpec, Any]:
    """Convolutions with long sums, concats, pools and a linear layer."""
    return random_network("squeezenet1_1", 1000), noise(2, 3, 96, 96)


def test_results_are_the_same_bits_whatever_was_measured() -> None:
    """Plans do differ: only the order of sums may not."""
    nets = [network(), (random_network("resnet18", 1000), noise(1, 3, 64, 64, seed=1))]
    rates = [
        {},
        {"flops": 4e12},
        {"l2_read": 1e9, "l3_read": 1e9, "memory_read": 1e8},
        {"l2_read": 1e13, "l3_read": 1e13, "memory_read": 1e13},
    ]
    from bslite.passes import simplify
    from bslite.plan import build_plan

    for spec, x in nets:
        wanted = bslite.run(spec, x)
        plans = set()
        for changed in rates:
            calibration.save(made_up(**changed))
            fresh = ModelSpec(spec.name, spec.inputs, spec.nodes, spec.outputs, spec.params)  # no plans yet
            for threads in (1, 2):
                np.testing.assert_array_equal(bslite.run(fresh, x, threads=threads), wanted)
            plans.add(str(build_plan(simplify(spec), [x.shape], detect.detect(2))))
        assert len(plans) > 1


def test_machine_round_trip() -> None:
    for machine in (Machine(), Machine.from_json(BY_HAND), calibration.calibrated(Machine(), made_up())):
        assert Machine.from_json(machine.to_json()) == machine
    assert Machine.from_json("{}") == Machine()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("nonsense", "JSON"),
        ("[1]", "JSON object"),
        ('{"cores": 4}', "'cores'.*threads"),
        ('{"threads": 0}', "threads must be a positive whole number, got 0"),
        ('{"threads": 1.5}', "threads"),
        ('{"threads": true}', "threads"),
        ('{"l2": "1M"}', "l2.*'1M'"),
        ('{"l3_bytes_per_cycle": Infinity}', "l3_bytes_per_cycle"),
        ('{"measured": {"threads": 1}}', "clock"),
        ('{"measured": 3}', "rates"),
    ],
)
def test_machine_json_errors(text: str, complaint: str) -> None:
    with pytest.raises(EngineError, match=complaint):
        Machine.from_json(text)


def test_a_plan_for_another_machine_needs_no_compiler() -> None:
    code = f"""
import sys
from bslite.frontends.weights.architectures.random_weights import random_state_dict
from bslite.frontends.weights.state_dict import from_state_dict
from bslite.machine import Machine
from bslite.passes import simplify
from bslite.plan import build_plan
spec = simplify(from_state_dict("resnet18", random_state_dict("resnet18")))
machine = Machine.from_json({BY_HAND!r})
plan = build_plan(spec, [(1, 3, 224, 224)], machine)
again = build_plan(spec, [(1, 3, 224, 224)], Machine.from_json(machine.to_json()))
assert plan.threads == 48
assert str(plan) == str(again)
assert str(plan) != str(build_plan(spec, [(1, 3, 224, 224)], Machine(threads=1)))
assert max(step.items for step in plan.steps if step.kernel == "conv") >= 24
assert not {{"numba", "llvmlite", "torch"}} & set(sys.modules)
"""
    printed(code)


def test_the_command(call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "measure", made_up)

    assert "memory" in call("calibrate", "--dry-run", "--json", tmp_path / "machine.json")
    assert not calibration.path().exists()
    assert "not yet" in call("info")
    assert str(calibration.path()) in call("calibrate").replace(" ", "")
    assert "GFLOP/s" in call("info")
    written = Machine.from_json((tmp_path / "machine.json").read_text())
    assert written == detect.detect(written.threads)
    monkeypatch.setattr(calibration.Calibration, "disturbed", True)
    calibration.forget()
    assert "try again" in call("calibrate", code=2)
    assert not calibration.path().exists()
    calibration.save(made_up())
    assert "forgotten" in call("calibrate", "--forget")
    assert "nothing" in call("calibrate", "--forget")


def test_the_commands_say_whether_tiles_are_used(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "measure", made_up)
    assert "tiles" not in call("calibrate", "--dry-run")
    monkeypatch.setattr(target, "has_tiles", lambda: False)
    assert "no unit for them" in call("info")
    monkeypatch.setattr(target, "has_tiles", lambda: True)
    assert "not used: turned off (BSLITE_TILES=0)" in call("info")
    monkeypatch.setattr(unit, "trusted", lambda: True)
    assert "a unit (AMX), not measured; six products for each of float32 by default" in call("info")
    monkeypatch.setattr(calibrate, "measure", lambda: made_up(tiles=1.875e8))
    assert "tiles of bfloat16 3,072 and" in call("calibrate")
    assert "GFLOP/s; six products for each of float32 by default" in call("info")


@pytest.mark.parametrize(
    ("has", "cpu", "used"), [(True, "znver4", 1.0), (True, "cooperlake", 0.0), (False, "znver4", 0.0)]
)
def test_dot_products_are_used_unmeasured_where_they_are_known_to_be_fast(
    has: bool, cpu: str, used: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "has_bfloat16_dots", lambda: has)
    here = target.simd()._replace(cpu=cpu)
    monkeypatch.setattr(target, "simd", lambda: here)
    assert description.described.__wrapped__(2).dot_cycles == used


def test_dot_products_are_used_where_they_were_found_fast(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for known in (0.0, 1.0):
        machine = Machine(dot_cycles=known)
        for dots, used in ((0.0, known), (2e11, 1.0), (1.2e11, 0.0)):
            assert calibration.calibrated(machine, made_up(dots=dots)).dot_cycles == used
    monkeypatch.setattr(target, "has_bfloat16_dots", lambda: False)
    assert "no instruction for them" in call("info")
    monkeypatch.setattr(target, "has_bfloat16_dots", lambda: True)
    monkeypatch.setattr(calibrate, "measure", lambda: made_up(dots=2e11))
    assert "dot products of bfloat16 200 and" in call("calibrate")
    assert 'which precision="bfloat16" takes' in call("info")
    monkeypatch.setattr(calibrate, "measure", lambda: made_up(dots=1.2e11))
    call("calibrate")
    assert "no faster than multiply-adds" in call("info")


def test_reading_in_turns_reads_all_of_it() -> None:
    """Every element counts once in each pass, whichever way it goes; the last panels may be fewer."""
    from bslite.engines.cpu.job import start_threads
    from bslite.kernels.cpu.runtime.stream import PANELS, READ, RUN, TURNS

    start_threads(2)
    size = 2 * PANELS + 3 * RUN
    for mode in (READ, TURNS):
        for passes in (1, 2, 3):
            memory, sink = np.zeros((2 * size + 4096) // 4, np.float32), np.zeros(32, np.float32)
            skip = -memory.ctypes.data % 4096 // 4
            data = memory[skip : skip + 2 * size // 4]
            data[:] = np.arange(len(data)) % 7
            stream.stream_job(mode, 2, size, passes, memory, sink).run(2)
            halves = data.reshape(2, -1).sum(axis=1, dtype=np.float64)
            assert sink[::16].tolist() == (passes * halves).tolist()


@pytest.mark.parametrize("alternate", [False, True])
def test_a_turn_of_reading_says_how_much_it_reads(alternate: bool) -> None:
    from bslite.kernels.cpu.runtime.stream import RUN

    for size, read in ((10 * RUN, 10 * RUN), (7 * RUN + 4, 6 * RUN), (4, 2 * RUN)):
        call, bytes_ = stream.read_turn(2, size, 3, alternate)
        call()
        assert bytes_ == 3 * read


def test_threads_meet() -> None:
    assert stream.meeting(1, 100) < 1e-3
    with pytest.raises(EngineError, match="cannot run at once"):
        stream.meeting(10_000, 1)
    if available_cores() > 1 and numba_threads() > 1:
        assert 0 < stream.meeting(2, 100) < 0.1
