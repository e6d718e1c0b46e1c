"""Stage times of answers as a small table: one column an answer, one row a stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from nearsay.wire.messages import STAGES

SHOWN_MS_MIN = 0.005  # less than this rounds to nothing
BAR_CELLS = 6


def waterfall(columns: Sequence[tuple[str, Mapping[str, float]]]) -> Table:
    """`columns`: title and stages_ms of each answer. Stages in the order a request passes them; the sum last."""
    table = Table(title="stages of each first translation, ms", title_justify="left", pad_edge=False)
    table.add_column("stage")
    for title, _ in columns:
        table.add_column(title, justify="left")
    totals = [sum(ms for stage, ms in stages_ms.items() if stage in STAGES) for _, stages_ms in columns]
    for stage in STAGES:
        if any(stages_ms.get(stage, 0.0) >= SHOWN_MS_MIN for _, stages_ms in columns):
            table.add_row(
                stage, *(_cell(c[1].get(stage, 0.0), total) for c, total in zip(columns, totals, strict=True))
            )
    table.add_section()
    table.add_row("all", *(f"{total:6.2f}" for total in totals))
    return table


def _cell(ms: float, total_ms: float) -> str:
    if ms < SHOWN_MS_MIN:
        return ""
    bar = "█" * round(BAR_CELLS * ms / total_ms) if total_ms > 0 else ""
    return f"{ms:6.2f} {bar}"
