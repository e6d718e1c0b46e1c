"""`nearsay load`: open-loop load on a running proxy, with a report."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from nearsay.cli.console import EXIT_USAGE, err, fail, out, reported_errors, write
from nearsay.cli.files import read_text
from nearsay.cli.options import AsJson, Key, Source, Target, TierName, Url
from nearsay.cli.translate import Job
from nearsay.client import AsyncClient, Result, TransportName
from nearsay.client.aio import DEFAULT_URL
from nearsay.lab.load import LoadPlan, run_load
from nearsay.lab.report import Report, Spread
from nearsay.lab.schedule import Arrivals
from nearsay.lab.sentences import SHORT_ENGLISH
from nearsay.runtime.tasks import Tasks


def command(
    target: Target = "de",
    source: Source = "en",
    tier: TierName = "auto",
    rate: Annotated[float, typer.Option(min=0.01, help="Requests a second.")] = 10.0,
    duration: Annotated[float, typer.Option(min=0.01, help="Seconds.")] = 10.0,
    warmup: Annotated[float, typer.Option(min=0.0, help="Seconds at the start that aren't reported.")] = 1.0,
    arrivals: Annotated[Arrivals, typer.Option(help="When requests are due.")] = "poisson",
    seed: Annotated[int, typer.Option(help="Of the arrivals.")] = 0,
    in_flight_max: Annotated[
        int, typer.Option(min=1, help="Requests at once; more wait, and their wait counts.")
    ] = 256,
    deadline_ms: Annotated[
        float, typer.Option(min=1.0, help="Of each request; goodput counts answers within it.")
    ] = 10_000,
    texts: Annotated[
        Path | None, typer.Option(help="File of texts, one a line; default: short English sentences.")
    ] = None,
    transport: Annotated[TransportName, typer.Option(help="How requests travel.")] = "auto",
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = "",
) -> None:
    """Offer open-loop load to a running proxy; latency counts from when a request was due, not when it was sent."""
    plan = LoadPlan(
        rate_per_s=rate,
        duration_s=duration,
        warmup_s=warmup,
        arrivals=arrivals,
        seed=seed,
        in_flight_max=in_flight_max,
        deadline_ms=deadline_ms,
    )
    try:
        lines = [line for line in read_text(texts).splitlines() if line.strip()] if texts else SHORT_ENGLISH
    except (OSError, ValueError) as error:
        raise fail(str(error), EXIT_USAGE) from None
    if not lines:
        raise fail(f"{texts} has no texts", EXIT_USAGE)
    with reported_errors():
        report = asyncio.run(_run(url, key, transport, plan, lines, Job(source, target, tier)))
    if as_json:
        write(msgspec.json.encode(report).decode() + "\n")
    else:
        out.print(report_table(report))
    if not report.ok:
        raise fail("no request succeeded")


async def _run(url: str, key: str, transport: TransportName, plan: LoadPlan, texts: Sequence[str], job: Job) -> Report:
    async with AsyncClient(url, key=key, transport=transport) as client:
        return await offer(client, plan, texts, job)


async def offer(client: AsyncClient, plan: LoadPlan, texts: Sequence[str], job: Job) -> Report:
    """Offer the plan's load, texts in turn; progress on stderr."""

    async def send(number: int) -> Result:
        return await client.translate(
            texts[number % len(texts)], job.source, job.target, tier=job.tier, deadline_ms=plan.deadline_ms
        )

    tasks = Tasks()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, console=err, disable=not err.is_terminal) as progress:
            bar = progress.add_task("load", total=round(plan.rate_per_s * (plan.warmup_s + plan.duration_s)))

            def show(_sent: int, ended: int, failed: int) -> None:
                progress.update(bar, completed=ended, description=f"load, {failed} failed" if failed else "load")

            return await run_load(plan, send, tasks, show)
    finally:
        await tasks.close()


def report_table(report: Report) -> Table:
    """The report for people; the JSON has all of it."""
    table = Table(title=_headline(report), title_justify="left")
    table.add_column("ms")
    rows = {"latency, from due": report.latency_ms, "service, from sent": report.service_ms, "late": report.late_ms}
    rows |= {f"stage {stage}": values for stage, values in report.stages_ms.items()}
    for name in report.latency_ms.percentiles or ("p50",):
        table.add_column(name, justify="right")
    for column in ("mean", "max"):
        table.add_column(column, justify="right")
    for name, values in rows.items():
        table.add_row(name, *_cells(values))
    return table


def _headline(report: Report) -> str:
    failed = ", ".join(f"{count} {code}" for code, count in report.errors.items()) or "none"
    return (
        f"{report.ok} of {report.requests} ok ({report.ok_per_s:.1f}/s, offered {report.offered_per_s:.1f}/s, "
        f"goodput {report.goodput_per_s:.1f}/s); failed: {failed}"
    )


def _cells(values: Spread) -> list[str]:
    return [f"{value:.2f}" for value in (*values.percentiles.values(), values.mean, values.max)]
