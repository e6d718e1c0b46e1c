"""`nearsay lab`: experiments on a running stack."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from nearsay.cli.console import EXIT_USAGE, err, fail, out, reported_errors, write
from nearsay.cli.files import read_text
from nearsay.cli.options import AsJson, Key, Source, Target, TierName, Url
from nearsay.client import AsyncClient, Event
from nearsay.client.aio import DEFAULT_URL
from nearsay.lab.overtake import OvertakePlan, Overtaking, Passage, own_texts, run_overtake
from nearsay.runtime.tasks import Tasks
from nearsay.wire.messages import Priority, Tier

CELLS = 48
DEADLINE_MS = 120_000.0
NAMES: dict[Priority, str] = {"batch": "bulk", "interactive": "interactive"}

app = typer.Typer(help="Experiments on a running stack.", no_args_is_help=True)


@app.callback()
def lab() -> None:
    """Experiments on a running stack."""


@app.command()
def overtake(
    target: Target = "de",
    source: Source = "en",
    tier: TierName = "origin",
    bulk: Annotated[int, typer.Option(min=1, help="Bulk texts, all sent at once.")] = 30,
    interactive: Annotated[int, typer.Option(min=1, help="Interactive texts, sent while the others decode.")] = 8,
    gap_ms: Annotated[float, typer.Option(min=0.0, help="Between two interactive texts.")] = 100.0,
    texts: Annotated[Path | None, typer.Option(help="File of bulk texts, one a line; default: our own.")] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = "",
) -> None:
    """Watch interactive texts overtake bulk texts that are being decoded."""
    plan = msgspec.structs.replace(own_texts(bulk, interactive), gap_s=gap_ms / 1e3)
    if texts is not None:
        plan = msgspec.structs.replace(plan, bulk=_lines(texts, bulk))
    with reported_errors(), err.status("bulk texts on their way, interactive ones after them"):
        found = asyncio.run(_run(url, key, plan, source, target, tier))
    if as_json:
        write(msgspec.json.encode(found).decode() + "\n")
    else:
        out.print(overtaking_table(found))
    if failed := [passage.code for passage in found.passages if passage.code != "ok"]:
        raise fail(f"{len(failed)} of {len(found.passages)} texts failed: {', '.join(sorted(set(failed)))}")


async def _run(url: str, key: str, plan: OvertakePlan, source: str, target: str, tier: Tier) -> Overtaking:
    tasks = Tasks()
    async with AsyncClient(url, key=key) as client:

        def stream(text: str, priority: Priority) -> AsyncGenerator[Event, None]:
            return client.stream(text, source, target, tier=tier, priority=priority, deadline_ms=DEADLINE_MS)

        try:
            return await run_overtake(plan, stream, tasks)
        finally:
            await tasks.close()


def overtaking_table(found: Overtaking) -> Table:
    """Everyone in the order of their answers, on a line of time each."""
    table = Table(title=_headline(found), title_justify="left", pad_edge=False)
    for column in ("text", "sent s", "first words", "answered", "took ms", "overtook"):
        table.add_column(column, justify="left" if column == "text" else "right")
    whole_s = max(passage.ended_s for passage in found.passages)
    table.add_column(f"0 to {whole_s:.1f} s: · waits, █ decodes")
    for passage in found.passages:
        mine = passage.priority == "interactive"
        table.add_row(
            f"{NAMES[passage.priority]} {passage.number + 1}",
            f"{passage.sent_s:.2f}",
            "" if passage.began_s is None else f"{passage.began_s:.2f}",
            f"{passage.ended_s:.2f}" if passage.code == "ok" else passage.code,
            f"{passage.took_ms:.0f}",
            f"{passage.overtook}" if mine else "",
            Text(timeline(passage, whole_s, CELLS), style="green" if mine else "dim"),
            style="bold" if mine else "",
        )
    return table


def timeline(passage: Passage, whole_s: float, cells: int) -> str:
    """The text's life on a line that is `whole_s` long: at least one cell, never more than there are."""

    def cell(seconds: float) -> int:
        return min(int(seconds / whole_s * cells), cells - 1) if whole_s > 0 else 0

    sent, ended = cell(passage.sent_s), cell(passage.ended_s)
    began = ended if passage.began_s is None else cell(passage.began_s)
    return " " * sent + "·" * (began - sent) + "█" * (ended - began + 1)


def _headline(found: Overtaking) -> str:
    mine = [passage for passage in found.passages if passage.priority == "interactive"]
    fast, alone = found.interactive_ms, found.alone_ms
    return (
        f"{found.overtakers} of {len(mine)} interactive texts overtook bulk texts that were being decoded.\n"
        f"p50 of interactive texts {fast.percentiles.get('p50', 0.0):.0f} ms (alone "
        f"{alone.percentiles.get('p50', 0.0):.0f} ms), of {found.bulk_ms.count} bulk texts "
        f"{found.bulk_ms.percentiles.get('p50', 0.0):.0f} ms"
    )


def _lines(path: Path, count: int) -> list[str]:
    try:
        lines = [line for line in read_text(path).splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise fail(str(error), EXIT_USAGE) from None
    if not lines:
        raise fail(f"{path} has no texts", EXIT_USAGE)
    return [lines[number % len(lines)] for number in range(count)]
