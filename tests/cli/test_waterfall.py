from __future__ import annotations

import io

from rich.console import Console

from nearsay.cli.waterfall import waterfall


def shown(*columns: tuple[str, dict[str, float]]) -> list[str]:
    console = Console(file=io.StringIO(), width=100)
    console.print(waterfall(columns))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_stages_in_order_with_their_sum() -> None:
    lines = shown(("en-de edge", {"edge_run": 6.0, "parse": 2.0, "e2e": 99.0}), ("en-pt origin", {"decode": 4.0}))
    names = [line.strip("│ ").split()[0] for line in lines if line.startswith("│")]
    assert names == ["parse", "edge_run", "decode", "all"]
    assert "8.00" in lines[-2] and "4.00" in lines[-2]


def test_nothing_took_any_time() -> None:
    assert any("0.00" in line for line in shown(("x", {"parse": 0.0})))
