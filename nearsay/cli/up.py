"""`nearsay up`: all three services on this machine, in the foreground.

Prints the proxy's URL first of all URLs, then one first translation per tier with its stage times. Ctrl-C or SIGTERM
drains the proxy, then the edge, then the origin; another one, a second later or more, kills them.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from nearsay.cli.console import EXIT_FAILED, err, fail, note, out
from nearsay.cli.options import Models
from nearsay.cli.ports import DEFAULTS, HOST, in_use
from nearsay.cli.regions import REGIONS_MAX
from nearsay.cli.services import require_services
from nearsay.cli.stack import Stack, StackOptions, make_stack
from nearsay.cli.supervisor import Supervisor
from nearsay.cli.waterfall import waterfall
from nearsay.client import AsyncClient, Result
from nearsay.lab.relay import Relay
from nearsay.runtime.child import ChildFailed
from nearsay.runtime.tasks import Tasks
from nearsay.wire.errors import InvalidRequest, NearsayError
from nearsay.wire.messages import ServedTier

PORT_MAX = 65_534  # the admin port is one above
FIRST_TEXT = "Good morning, how are you?"
FIRST_WAIT_S = 20.0  # for the edge to find the origin
FIRST_POLL_S = 0.05
# One stop can arrive twice: a terminal or a supervisor signals the whole process group, and `make` passes its own on.
SAME_STOP_S = 1.0
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class First(msgspec.Struct, frozen=True):
    """One of the translations shown at the start."""

    source: str
    target: str
    tier: ServedTier

    @property
    def title(self) -> str:
        """As a column's head."""
        return f"{self.source}-{self.target} {self.tier}"


FIRSTS = (
    First("en", "de", "edge"),
    First("en", "pt", "edge"),
    First("en", "de", "origin"),
    First("en", "pt", "origin"),
)


def command(
    port: Annotated[
        int,
        typer.Option(envvar="NEARSAY_PORT", min=0, max=PORT_MAX, help="The proxy's; 0 = free ports for everything."),
    ] = DEFAULTS["proxy"].port,
    edge_port: Annotated[int, typer.Option(min=0, max=PORT_MAX, help="The edge worker's; 0 = a free one.")] = DEFAULTS[
        "edge"
    ].port,
    origin_port: Annotated[int, typer.Option(min=0, max=PORT_MAX, help="The origin's; 0 = a free one.")] = DEFAULTS[
        "origin"
    ].port,
    models: Models = None,
    origin: Annotated[bool, typer.Option(help="With an origin (needs torch), or edge only.")] = True,
    regions: Annotated[
        int, typer.Option(min=1, max=REGIONS_MAX, help="More than 1: emulated regions, each with an edge worker.")
    ] = 1,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show what the services log.")] = False,
) -> None:
    """Start proxy, edge worker and origin on this machine; Ctrl-C drains and stops them.

    Each has its admin port (/metrics, /stats, /readyz) one above its port.
    """
    require_services(("proxy", "edge", *(("origin",) if origin else ())))
    options = StackOptions(
        port=port,
        edge_port=edge_port,
        origin_port=origin_port,
        models=tuple(models or ()),
        with_origin=origin,
        regions=regions,
    )
    raise typer.Exit(run_up(options, verbose=verbose))


def run_up(options: StackOptions, *, verbose: bool = False) -> int:
    """Run until told to stop; the exit status."""
    with tempfile.TemporaryDirectory(prefix="nearsay-") as folder:
        stack = make_stack(options, Path(folder))
        ports = [port for doors in stack.ports.values() for port in (doors.port, doors.admin_port)]
        if busy := [str(port) for port in ports if in_use(port)]:
            raise fail(f"port {', '.join(busy)} in use: choose others, or free ones with --port 0")
        return asyncio.run(_Up(stack, verbose=verbose).run())


class _Up:
    def __init__(self, stack: Stack, *, verbose: bool) -> None:
        self._stack = stack
        self._tasks = Tasks()
        self._stop = asyncio.Event()
        self._stop_asked = 0.0
        log = note if verbose else None
        self._supervisor = Supervisor(stack.commands, tasks=self._tasks, say=note, log=log, hidden=stack.hidden)

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._on_signal)
        try:
            failure = await self._serve_until_stopped()
            if failure is None:
                note("draining")
            else:
                err.print(f"error: {failure}", style="red", markup=False, soft_wrap=True)
        finally:
            await self._supervisor.stop()
            await self._tasks.close()
        note("stopped")
        return 0 if failure is None else EXIT_FAILED

    def _on_signal(self) -> None:
        now = asyncio.get_running_loop().time()
        if not self._stop.is_set():
            self._stop_asked = now
            self._stop.set()
        elif now - self._stop_asked >= SAME_STOP_S:
            self._supervisor.kill()

    async def _serve_until_stopped(self) -> ChildFailed | None:
        serving = self._tasks.spawn(self._serve(), name="serve")
        stopping = self._tasks.spawn(self._stop.wait(), name="stop signal")
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            return serving.result()
        serving.cancel()
        await asyncio.wait((serving,))
        return None

    async def _serve(self) -> ChildFailed:
        try:
            for distance in self._stack.distances:
                delay_s = distance.region.rtt_ms / 2e3
                await Relay((HOST, distance.edge.port), delay_s, self._tasks).start(distance.port)
            with err.status(f"starting {', '.join(self._stack.commands)}"):
                await self._supervisor.start(lambda ready: note(f"{ready.service} is ready"))
            out.print(f"Nearsay is up: {self._stack.url}", soft_wrap=True)
            self._show()
        except ChildFailed as failure:
            return failure
        watching = self._tasks.spawn(self._supervisor.watch(), name="watch")
        try:
            await show_firsts(self._stack.url)
            return await watching
        finally:
            watching.cancel()  # whoever stops the services now must not find them restarted
            await asyncio.wait((watching,))

    def _show(self) -> None:
        """Where everything is, and with regions, how to see one go and come back."""
        away = {distance.region.service: f", {distance.region.rtt_ms:g} ms away" for distance in self._stack.distances}
        for name, ports in self._stack.ports.items():
            pid = f", pid {self._supervisor.children[name].pid}" if name in away else ""
            out.print(
                f"  {name:7} port {ports.port}, admin port {ports.admin_port}{away.get(name, '')}{pid}", soft_wrap=True
            )
        if self._stack.routing is not None:
            out.print(f"  routing config, read again when it changes: {self._stack.routing}", soft_wrap=True)
            out.print("  kill an edge worker by its pid: `nearsay stats` shows the spill and the return")


async def show_firsts(url: str) -> None:
    """Translate FIRST_TEXT once per tier that the services have, show each answer and the stage times."""
    answers: list[tuple[First, Result]] = []
    async with AsyncClient(url) as client:
        for first in FIRSTS:
            with err.status(f"first translation, {first.title}"):
                result = await _first(client, first)
            if result is not None:
                answers.append((first, result))
                out.print(f"  {first.title:14} {result.text}", markup=False, soft_wrap=True)
    if answers:
        out.print(waterfall([(first.title, result.stages_ms) for first, result in answers]))
    out.print(f'try: nearsay translate --url {url} --to de "{FIRST_TEXT}"', markup=False, soft_wrap=True)


async def _first(client: AsyncClient, first: First) -> Result | None:
    """The answer, None when no model serves it. Waits for an edge that is still looking for its origin."""
    give_up = asyncio.get_running_loop().time() + FIRST_WAIT_S
    while True:
        try:
            return await client.translate(FIRST_TEXT, first.source, first.target, tier=first.tier)
        except InvalidRequest:
            return None
        except NearsayError as error:
            if asyncio.get_running_loop().time() > give_up:
                note(f"no first translation by {first.title}: {error}")
                return None
        await asyncio.sleep(FIRST_POLL_S)
