from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest

from bench.report import Measure, read_result, write_result

LOWER = Measure("p50", 1.5, "x", floor=1.6, target=1.2, better="lower")
HIGHER = Measure("rate", 0.8, "x", floor=0.7, target=0.9, better="higher")


def test_written_and_read_back(tmp_path: Path) -> None:
    path = write_result("case", [LOWER, HIGHER], {"model": "m@1", "sentences": 3}, tmp_path / "results")
    result = read_result(path)
    assert path.name == "case.json"
    assert (result.case, result.measures, result.notes) == ("case", (LOWER, HIGHER), {"model": "m@1", "sentences": 3})
    assert result.machine["cpus"] and result.versions["python"]
    assert result.date.endswith("+00:00")


@pytest.mark.parametrize(
    ("measure", "value", "passes", "on_target"),
    [
        (LOWER, 1.2, True, True),
        (LOWER, 1.6, True, False),
        (LOWER, 1.61, False, False),
        (HIGHER, 0.9, True, True),
        (HIGHER, 0.7, True, False),
        (HIGHER, 0.69, False, False),
        (LOWER, math.nan, False, False),
        (HIGHER, math.nan, False, False),
    ],
)
def test_floor_and_target(measure: Measure, value: float, passes: bool, on_target: bool) -> None:
    measured = msgspec.structs.replace(measure, value=value)
    assert (measured.passes, measured.on_target) == (passes, on_target)


def test_nothing_measured_is_nothing_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="measured nothing"):
        write_result("case", [], {}, tmp_path)


def test_a_measure_without_a_floor_is_refused(tmp_path: Path) -> None:
    path = write_result("case", [LOWER], {}, tmp_path)
    path.write_text(path.read_text().replace('"floor": 1.6', '"floor": null'))
    with pytest.raises(msgspec.ValidationError):
        read_result(path)
