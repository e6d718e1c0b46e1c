"""Shows a training run: a live line on a terminal, plain lines in a log."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from nearsay.distill.train import Report


class ProgressView:
    """Call it with each Report."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
        self._live = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._live.add_task("starting", total=None)

    def __enter__(self) -> ProgressView:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def __call__(self, report: Report) -> None:
        line = render(report)
        if self._console.is_terminal:
            self._live.update(self._task, description=line, total=report.tokens_total, completed=report.tokens)
        else:
            self._console.print(line, soft_wrap=True, highlight=False)


def render(report: Report) -> str:
    minutes, seconds = divmod(round(report.eta_s), 60)
    parts = (
        f"step {report.step:,}",
        f"{report.tokens / 1e6:.2f} of {report.tokens_total / 1e6:.2f} M tokens",
        f"loss {report.loss:.4f}",
        f"rate {report.rate:.1e}",
        f"{report.tokens_per_s:,.0f} tokens/s",
        f"ETA {minutes}:{seconds:02}",
    )
    return "  ".join(parts)
