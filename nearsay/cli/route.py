"""`nearsay route`: check a routing config; explain where a request goes. Both run the proxy's own code."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import aiohttp
import msgspec
import typer

from nearsay.cli.console import EXIT_FAILED, EXIT_USAGE, err, fail, note, out, write
from nearsay.cli.options import AdminSecret, AsJson, Source, TierName, admin_headers
from nearsay.runtime.config import ConfigError
from nearsay.wire.hops import parse_address
from nearsay.wire.messages import Priority
from proxy.core.endpoint import pair_name
from proxy.core.explain import Explanation, explain
from proxy.core.fleet import Features
from proxy.core.fleet_view import FleetView, assumed, restored
from proxy.core.routing_check import Routing
from proxy.core.routing_config import DEFAULT_TENANT, RoutingConfig
from proxy.location import Locator
from proxy.routing_file import load

TIMEOUT_S = 3.0

app = typer.Typer(help="Check a routing config; explain where a request goes, and why.", no_args_is_help=True)


class Checked(msgspec.Struct, frozen=True):
    """What `check --json` prints."""

    routing: str
    regions: tuple[str, ...]
    problems: tuple[str, ...]


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="The routing config, TOML.")],
    as_json: AsJson = False,
) -> None:
    """List all that is wrong with a routing config; exit status 1 if anything is."""
    try:
        routing = load(file)
    except ConfigError as error:
        checked = Checked("", (), tuple(error.problems))
    else:
        checked = Checked(routing.label, tuple(routing.config.regions), ())
    if as_json:
        write(msgspec.json.encode(checked).decode() + "\n")
    elif checked.problems:
        for problem in checked.problems:
            err.print(problem, markup=False, soft_wrap=True)
    else:
        out.print(f"{file.name} is good: {checked.routing}, regions {', '.join(checked.regions)}", markup=False)
    if checked.problems:
        raise typer.Exit(EXIT_FAILED)


@app.command("explain")
def explain_command(
    config: Annotated[Path | None, typer.Option("--config", help="Routing config; default: the running one.")] = None,
    admin: Annotated[
        str, typer.Option(envvar="NEARSAY_ADMIN", help="Admin URL of a running proxy, whose live state decides.")
    ] = "",
    source: Source = "en",
    target: Annotated[str, typer.Option("--to", "--target", "-t", help="Language to translate into.")] = "de",
    text: Annotated[str, typer.Option(help="Its length counts.")] = "Good morning, how are you?",
    tier: TierName = "auto",
    priority: Annotated[Priority, typer.Option(help="Class of the request.")] = "interactive",
    tenant: Annotated[str, typer.Option(help="Who asks.")] = DEFAULT_TENANT,
    country: Annotated[str, typer.Option(help="Where from: two capital letters; default: not known.")] = "",
    ip: Annotated[str, typer.Option(help="The client's address, whose country --geoip knows.")] = "",
    geoip: Annotated[Path | None, typer.Option(help="The proxy's MMDB file.")] = None,
    session: Annotated[str, typer.Option(help="Session of the request.")] = "",
    deadline_ms: Annotated[float, typer.Option(min=1.0, help="Of the request.")] = 10_000.0,
    here: Annotated[
        str, typer.Option(help="Without --admin: where the proxy stands, a region or LATITUDE,LONGITUDE.")
    ] = "",
    as_json: AsJson = False,
    admin_secret: AdminSecret = "",
) -> None:
    """Say where a request goes, why, what would be second, and at which load it would go there.

    With --admin the running proxy's measurements decide; without, distance alone, with every region up and idle.
    """
    features = Features(
        pair=pair_name(source, target),
        tier=tier,
        priority=priority,
        chars=len(text),
        tenant=tenant,
        country=_country(ip, geoip) if ip else country,
        session=session,
        deadline_ms=deadline_ms,
    )
    routing = _load(config) if config is not None else None
    if admin:
        explanation = _explain(features, asyncio.run(_fetch(admin, admin_secret)), routing)
    elif routing is not None:
        place = _place(here or routing.config.default_region or next(iter(routing.config.regions)), routing.config)
        explanation = _explain(features, assumed(routing.config, routing.label, features.pair, place), None)
    else:
        raise fail("--config or --admin is needed", EXIT_USAGE)
    if as_json:
        write(msgspec.json.encode(explanation).decode() + "\n")
    else:
        out.print("\n".join(explanation.lines()), markup=False, soft_wrap=True)


class Shown(msgspec.Struct, frozen=True):
    """What a proxy's /routing says."""

    fleet: FleetView


def _explain(features: Features, shown: FleetView, routing: Routing | None) -> Explanation:
    if routing is not None:
        shown = msgspec.structs.replace(shown, label=routing.label)
    fleet = restored(shown, 0.0, None if routing is None else routing.config)
    return explain(features, fleet, 0.0)


def _country(ip: str, geoip: Path | None) -> str:
    """Where the proxy would think that a client is."""
    address = parse_address(ip)
    if address is None:
        raise fail(f"--ip: {ip!r} is no address", EXIT_USAGE)
    if geoip is None:
        raise fail("--ip needs --geoip", EXIT_USAGE)
    locator = Locator(geoip)
    asyncio.run(locator.refresh())
    if not locator.ready:
        raise fail(f"{geoip.name} can't be used")
    place = locator.locate(address)
    note(f"{ip}: {place.country or 'no country'} ({place.source})")
    return place.country


def _load(path: Path) -> Routing:
    try:
        return load(path)
    except ConfigError as error:
        raise fail("\n".join(error.problems)) from None


def _place(here: str, config: RoutingConfig) -> tuple[float, float] | None:
    """A region's location, or the one that is written out."""
    if here in config.regions:
        return config.regions[here].location
    try:
        latitude, longitude = (float(part) for part in here.split(","))
    except ValueError:
        raise fail(f"--here: {here!r} is neither a region nor LATITUDE,LONGITUDE", EXIT_USAGE) from None
    return latitude, longitude


async def _fetch(admin: str, secret: str) -> FleetView:
    headers = admin_headers(secret)
    try:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        url = f"{admin.rstrip('/')}/routing"
        session = aiohttp.ClientSession(timeout=timeout, raise_for_status=True, headers=headers)
        async with session as http, http.get(url) as answer:
            return msgspec.json.decode(await answer.read(), type=Shown).fleet
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:  # msgspec's errors are ValueErrors
        raise fail(f"{admin} says nothing of routing: {str(error) or 'no answer in time'}") from None
