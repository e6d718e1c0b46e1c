"""`nearsay stats`: latency per stage, tier and length bucket, and what sessions reuse, read from the admin doors."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Annotated

import aiohttp
import msgspec
import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from nearsay.cli.console import fail, out, write
from nearsay.cli.options import AdminSecret, AsJson, admin_headers
from nearsay.cli.ports import DEFAULTS, HOST
from nearsay.wire.messages import LENGTH_BUCKET_NAMES, STAGES

TIMEOUT_S = 3.0
WATCH_S = 1.0
OF_REGION = re.compile(r"(?P<name>\w+)\{region=(?P<region>[^,}]+)(?:,\w+=(?P<what>\w+))?\}")  # routed{region=eu,why=x}
WORKER = re.compile(r",worker=\w+")
ADMINS = tuple(f"http://{HOST}:{ports.admin_port}" for ports in DEFAULTS.values())


def command(
    admins: Annotated[
        list[str] | None, typer.Option("--admin", envvar="NEARSAY_ADMIN", help="A service's admin URL; repeatable.")
    ] = None,
    as_json: AsJson = False,
    admin_secret: AdminSecret = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep showing; Ctrl-C ends.")] = False,
) -> None:
    """Latency of running services: p50, p95 and p99 per stage, tier and length bucket (source characters)."""
    asked = admins or ADMINS
    asyncio.run(_watch(asked, admin_secret) if watch else _once(asked, admin_secret, as_json))


async def _once(admins: Sequence[str], secret: str, as_json: bool) -> None:
    found = await fetch_stats(admins, secret)
    if as_json:
        write(msgspec.json.encode(found).decode() + "\n")
    else:
        out.print(_view(found))
    if not any(isinstance(stats, ServiceStats) for stats in found.values()):
        raise fail("no service answered; is `nearsay up` running, and are these its admin ports?")


async def _watch(admins: Sequence[str], secret: str) -> None:
    with Live(console=out, screen=out.is_terminal, auto_refresh=False) as live:
        while True:
            live.update(_view(await fetch_stats(admins, secret)), refresh=True)
            await asyncio.sleep(WATCH_S)


def _view(found: Mapping[str, ServiceStats | str]) -> Group:
    shown: list[Table | Text] = []
    for admin, stats in found.items():
        if isinstance(stats, ServiceStats):
            shown += [stats_table(stats), *regions_table(stats), *sessions_table(stats)]
        else:
            shown.append(Text(f"{admin}: {stats}"))
    return Group(*shown)


class StageStats(msgspec.Struct, frozen=True):
    """Quantiles of one stage (or "e2e") for one tier and length bucket."""

    stage: str
    tier: str
    bucket: str
    count: int
    p50_ms: float
    p95_ms: float
    p99_ms: float


class ServiceStats(msgspec.Struct, frozen=True):
    """What a service's `/stats` says."""

    service: str
    state: str
    stages: tuple[StageStats, ...] = ()
    counters: Mapping[str, float] = {}
    gauges: Mapping[str, float] = {}


async def fetch_stats(admins: Sequence[str], secret: str = "") -> dict[str, ServiceStats | str]:
    """Stats of each admin address, or why there are none."""
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout, headers=admin_headers(secret)) as session:
        return dict(zip(admins, await asyncio.gather(*(_fetch(session, admin) for admin in admins)), strict=True))


async def _fetch(session: aiohttp.ClientSession, admin: str) -> ServiceStats | str:
    try:
        async with session.get(f"{admin.rstrip('/')}/stats") as response:
            response.raise_for_status()
            return msgspec.json.decode(await response.read(), type=ServiceStats)
    except aiohttp.ClientResponseError as error:
        return f"HTTP {error.status}"
    except TimeoutError:
        return "no answer in time"
    except (aiohttp.ClientError, msgspec.MsgspecError, ValueError) as error:
        return str(error)


def stats_table(stats: ServiceStats) -> Table:
    """A service's stages, in the order a request passes them, "e2e" first."""
    table = Table(title=f"{stats.service}: {stats.state}", title_justify="left")
    for column in ("stage", "tier", "length"):
        table.add_column(column)
    for column in ("count", "p50 ms", "p95 ms", "p99 ms"):
        table.add_column(column, justify="right")
    for row in sorted(stats.stages, key=_order):
        quantiles = (f"{value:.2f}" for value in (row.p50_ms, row.p95_ms, row.p99_ms))
        table.add_row(row.stage, row.tier, row.bucket, str(row.count), *quantiles)
    return table


def regions_table(stats: ServiceStats) -> list[Table]:
    """A proxy's regions, if it has any: where requests went, which of them would have gone elsewhere, who was left."""
    found: dict[str, dict[str, float]] = {}
    for series, value in {**stats.counters, **stats.gauges}.items():
        # Of several processes, each with a view of its own, the last one stands for all.
        if (parts := OF_REGION.fullmatch(WORKER.sub("", series))) is not None:
            found.setdefault(parts["region"], {})[f"{parts['name']} {parts['what'] or ''}".strip()] = value
    if not found:
        return []
    table = Table(title="regions", title_justify="left")
    table.add_column("region")
    for column in ("edges", "ms away", "requests", "spilled", "probes", "left", "returned"):
        table.add_column(column, justify="right")
    for region, of in sorted(found.items()):
        spilled = sum(count for name, count in of.items() if name.startswith("routed spill"))
        sent = sum(count for name, count in of.items() if name.startswith("routed"))
        rest = (of.get(name, 0.0) for name in ("routed probe", "region_turns left", "region_turns returned"))
        away = f"{of['region_rtt_ms']:.1f}" if "region_rtt_ms" in of else ""
        counts = (f"{count:g}" for count in (sent, spilled, *rest))
        table.add_row(region, f"{of.get('region_edges_up', 0.0):g}", away, *counts)
    return [table]


def sessions_table(stats: ServiceStats) -> list[Table]:
    """An origin's sessions, if it has had any: what they have reused since its start."""

    def value(name: str) -> int:
        return int(stats.gauges.get(name, 0))

    def share(part: int, whole: int) -> str:
        return f"{100 * part / whole:.0f} %" if whole else ""

    if not value("session_segments"):
        return []
    table = Table(title="sessions", title_justify="left")
    for column in ("reuse", "", "of all"):
        table.add_column(column, justify="left" if column == "reuse" else "right")
    segments, plain = value("session_segments"), value("session_plain_passes")
    saved, drafted = plain - value("session_passes"), value("session_draft_tokens")
    encoded, reused = value("sources_encoded"), value("sources_reused")
    for name, part, whole in (
        ("segments answered without decoding", value("session_segments_reused"), segments),
        ("decoder passes saved", saved, plain),
        ("drafted tokens that stood", value("session_draft_tokens_accepted"), drafted),
        ("segments that lean on their last answer", value("session_leaning"), segments),
        ("sources whose encoding was kept", reused, encoded + reused),
    ):
        table.add_row(name, str(part), share(part, whole))
    table.add_section()
    table.add_row("sessions now", str(value("sessions")), f"{value('session_bytes') / 1024:.0f} KiB")
    return [table]


def _order(row: StageStats) -> tuple[str, int, int, str]:
    bucket = LENGTH_BUCKET_NAMES.index(row.bucket) if row.bucket in LENGTH_BUCKET_NAMES else len(LENGTH_BUCKET_NAMES)
    stage = STAGES.index(row.stage) if row.stage in STAGES else -1
    return row.tier, bucket, stage, row.stage
