"""A unit for tiles of bfloat16 is used where there is one, after a trial, unless somebody turns it off."""

import warnings
from collections.abc import Iterator

import pytest
from engine.test_calibrate import made_up

from bslite.engines.cpu import calibration, unit
from bslite.engines.cpu.description import described
from bslite.kernels.cpu.vector import target
from bslite.machine import Machine
from bslite.plan.cpu.on_tiles.split import CYCLES
from bslite.spec import Array


@pytest.fixture(autouse=True)
def there(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine with a unit, for all that anybody asks."""
    monkeypatch.setattr(target, "has_tiles", lambda: True)
    monkeypatch.delenv(unit.OFF, raising=False)
    unit._error.cache_clear()
    yield
    unit._error.cache_clear()


def planned(found: calibration.Calibration | None = None) -> Machine:
    return calibration.calibrated(described(2), found)


def test_the_trial_multiplies() -> None:
    """By the unit, where there is one, else as it is emulated."""
    assert 1e-9 < unit.trial() <= unit.MOST


def test_the_trial_knows_a_wrong_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if it is the last one of both factors."""
    right = unit.split

    def split(x: Array) -> list[Array]:
        first, second, last = right(x)
        return [first, second, 0 * last]

    monkeypatch.setattr(unit, "split", split)
    assert unit.trial() > unit.MOST


def test_plans_use_it() -> None:
    assert planned().tile_cycles == CYCLES
    assert planned(made_up()).tile_cycles == CYCLES  # measured before it was there
    assert planned(made_up(tiles=1.875e8)).tile_cycles not in (0, CYCLES)


@pytest.mark.parametrize("error", [1e-5, 1.0, float("nan"), float("inf")])
def test_not_if_its_products_are_wrong(error: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit, "trial", lambda: error)
    with pytest.warns(RuntimeWarning, match="multiplies with an error of"):
        assert not unit.trusted()
    assert planned().tile_cycles == 0  # told once
    unit._error.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning):
            planned()
    assert planned().tile_cycles == 0
    assert planned(made_up(tiles=1.875e8)).tile_cycles == 0


def test_not_if_it_is_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(unit.OFF, "0")
    assert planned().tile_cycles == 0
    assert planned(made_up(tiles=1.875e8)).tile_cycles == 0


def test_not_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "has_tiles", lambda: False)
    assert planned().tile_cycles == 0
