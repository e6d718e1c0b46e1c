"""`nearsay models`: what running services serve; `nearsay models reload`: newer models on their disks take its place.

Edges are told before origins: an origin refuses a model with a new vocabulary until the edges have that, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated

import aiohttp
import msgspec
import typer
from rich.table import Table
from rich.text import Text

from nearsay.cli.console import EXIT_FAILED, fail, note, out, write
from nearsay.cli.options import AdminSecret, AsJson, admin_headers
from nearsay.cli.stats import ADMINS
from nearsay.runtime.model_admin import ModelsReport

LOOK_TIMEOUT_S = 3.0
RELOAD_TIMEOUT_S = 600.0
ORDER = ("edge", "origin")
ANSWERS = (200, 422)  # of a service that has models

Admins = Annotated[
    list[str] | None, typer.Option("--admin", envvar="NEARSAY_ADMIN", help="A service's admin URL; repeatable.")
]

app = typer.Typer(invoke_without_command=True)


@app.callback()
def show(
    context: typer.Context, admins: Admins = None, admin_secret: AdminSecret = "", as_json: AsJson = False
) -> None:
    """Models of running services: which are served, which are not and why."""
    if context.invoked_subcommand is None:
        _finish(asyncio.run(_ask(admins or ADMINS, admin_secret, reload=False)), as_json)


@app.command("reload")
def reload(admins: Admins = None, admin_secret: AdminSecret = "", as_json: AsJson = False) -> None:
    """Look at the disk again: newer models take the place of those served, without a failed request."""
    _finish(asyncio.run(_ask(admins or ADMINS, admin_secret, reload=True)), as_json)


def _finish(found: Mapping[str, ModelsReport | str], as_json: bool) -> None:
    """Show what there is. Raises typer.Exit when something is wrong with a model, or nobody answered."""
    reports = [report for report in found.values() if isinstance(report, ModelsReport)]
    if as_json:
        write(msgspec.json.encode(found).decode() + "\n")
    else:
        for admin, report in found.items():
            if isinstance(report, ModelsReport):
                _tell(report)
            else:
                note(f"{admin}: {report}")
    if not reports:
        raise fail("no service with models answered; is `nearsay up` running, and are these its admin ports?")
    if not all(report.good for report in reports):
        raise typer.Exit(EXIT_FAILED)


def _tell(report: ModelsReport) -> None:
    for old, new in report.swapped:
        out.print(f"{report.service}: {old} -> {new}" if old else f"{report.service}: {new} is new", markup=False)
    for sentence in report.notes:
        note(f"{report.service}: {sentence}")
    out.print(models_table(report))


def models_table(report: ModelsReport) -> Table:
    """A service's models, problems in red."""
    table = Table(title=report.service, title_justify="left")
    for column in ("pair", "tier", "model", ""):
        table.add_column(column)
    table.add_column("MiB", justify="right")
    table.add_column("problem", overflow="fold")
    for model in report.models:
        size = f"{model.bytes / (1 << 20):.0f}" if model.bytes else ""
        problem = Text(f"{model.problem}: {model.detail}" if model.problem else "", "red")
        table.add_row(model.pair, model.tier, model.name, model.standing.replace("_", " "), size, problem)
    return table


async def _ask(admins: Sequence[str], secret: str, *, reload: bool) -> dict[str, ModelsReport | str]:
    """Each service's report, or why there is none; asked to reload one after another, in ORDER."""
    async with aiohttp.ClientSession(headers=admin_headers(secret)) as session:
        seen = await asyncio.gather(*(_fetch(session, "GET", f"{_url(admin)}/models") for admin in admins))
        found = {admin: report for admin, report in zip(admins, seen, strict=True) if report is not None}
        if not reload:
            return found
        for admin in sorted(found, key=lambda admin: _place(found[admin])):
            if isinstance(found[admin], ModelsReport):
                found[admin] = await _fetch(session, "POST", f"{_url(admin)}/models/reload") or "has no models"
        return found


async def _fetch(session: aiohttp.ClientSession, method: str, url: str) -> ModelsReport | str | None:
    """A report, or why there is none; None from a service that has no models."""
    timeout = aiohttp.ClientTimeout(total=LOOK_TIMEOUT_S if method == "GET" else RELOAD_TIMEOUT_S)
    try:
        async with session.request(method, url, timeout=timeout) as response:
            if response.status == 404:
                return None
            if response.status == 401:
                return "wants its secret: --admin-secret or NEARSAY_ADMIN_SECRET"
            if response.status == 409:
                return "a reload is under way"
            if response.status not in ANSWERS:
                return f"HTTP {response.status}"
            return msgspec.json.decode(await response.read(), type=ModelsReport)
    except TimeoutError:
        return "no answer in time"
    except (aiohttp.ClientError, msgspec.MsgspecError, ValueError) as error:
        return str(error)


def _place(report: ModelsReport | str) -> int:
    service = report.service if isinstance(report, ModelsReport) else ""
    return ORDER.index(service) if service in ORDER else len(ORDER)


def _url(admin: str) -> str:
    return admin.rstrip("/")
