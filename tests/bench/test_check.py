from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.check import REQUIRED, check
from bench.report import Measure, write_result


def passing(names: Iterable[str]) -> dict[str, Measure]:
    return {name: Measure(name, 1.0, "x", 2.0, 1.0, "lower") for name in names}


PASSING = passing(REQUIRED["edge_path"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Results of all cases, all good."""
    for case, names in REQUIRED.items():
        write_result(case, list(passing(names or ("any",)).values()), {}, tmp_path)
    return tmp_path


def failures(folder: Path) -> list[tuple[str, str]]:
    return [(verdict.case, verdict.detail) for verdict in check(folder) if not verdict.ok]


def test_all_well(folder: Path) -> None:
    assert failures(folder) == []


def test_a_case_without_a_result(folder: Path) -> None:
    (folder / "link.json").unlink()
    assert failures(folder) == [("link", "has no result: python -m bench run link")]


def test_a_measure_that_misses_its_floor(folder: Path) -> None:
    write_result("link", [Measure("round_trips", 0.5, "x", 1.0, 2.0, "higher")], {}, folder)
    ((case, detail),) = failures(folder)
    assert case == "link"
    assert detail == "round_trips 0.5 x (floor >= 1, target >= 2): MISSES ITS FLOOR"


def test_a_result_that_lacks_a_measure(folder: Path) -> None:
    write_result("edge_path", [PASSING["short_p50_ratio"]], {}, folder)
    assert [detail for _, detail in failures(folder)] == [
        "lacks proxy_link_p50_ms",
        "lacks short_p99_ratio",
        "lacks throughput_ratio",
    ]


def test_results_of_another_name_or_shape(folder: Path) -> None:
    (folder / "link.json").write_bytes((folder / "edge_path.json").read_bytes())
    (folder / "more.json").write_text("{}")
    found = failures(folder)
    assert found[0] == ("link", "is a result of 'edge_path'")
    assert found[1][0] == "more" and found[1][1].startswith("can't be read")


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == main(["what"]) == 2
    assert "edge_path" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["run", "nothing"])
