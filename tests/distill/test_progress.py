from __future__ import annotations

import io

import pytest
from rich.console import Console

from nearsay.distill.progress import ProgressView, render
from nearsay.distill.train import Report

REPORT = Report(
    step=1200, tokens=4_800_000, tokens_total=9_600_000, loss=2.25, rate=5e-4, tokens_per_s=4000.0, eta_s=1205.0
)


def test_a_report_tells_loss_speed_and_time_left() -> None:
    line = render(REPORT)
    for part in ("step 1,200", "4.80 of 9.60 M", "loss 2.2500", "4,000 tokens/s", "ETA 20:05"):
        assert part in line


def test_a_log_gets_plain_lines_and_a_terminal_a_live_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")  # a dumb one is never live
    for terminal in (False, True):
        out = io.StringIO()
        with ProgressView(Console(file=out, force_terminal=terminal, width=200)) as view:
            view(REPORT)
        assert "loss 2.2500" in out.getvalue()
