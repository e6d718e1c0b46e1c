"""`nearsay proxy`: become one; `nearsay proxy reload`: have a running one's processes replaced, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated

import aiohttp
import msgspec
import typer

from nearsay.cli.console import fail, out
from nearsay.cli.options import AdminSecret, Config, Overrides, admin_headers
from nearsay.cli.ports import DEFAULTS, HOST
from nearsay.cli.services import become

TIMEOUT_S = 600.0  # as long as the new processes take to be ready, one after the other
ADMIN = f"http://{HOST}:{DEFAULTS['proxy'].admin_port}"

app = typer.Typer(help="Run a proxy, or reload one.")


@app.callback(invoke_without_command=True)
def run(context: typer.Context, config: Config = None, overrides: Overrides = None) -> None:
    """Run a proxy; with `workers` in its config, the parent of several processes."""
    if context.invoked_subcommand is None:
        become("proxy", config, overrides or ())


@app.command()
def reload(
    admin: Annotated[str, typer.Option(envvar="NEARSAY_ADMIN", help="The proxy's admin URL.")] = ADMIN,
    admin_secret: AdminSecret = "",
) -> None:
    """Replace the processes of a running proxy by new ones, with the code and the config as they are now.

    No connection is refused or lost. If the config is wrong or a new process fails, the old ones go on.
    """
    workers = asyncio.run(_reload(admin.rstrip("/"), admin_headers(admin_secret)))
    out.print(f"{workers} new processes serve; the old ones finish what they have")


async def _reload(admin: str, headers: Mapping[str, str]) -> int:
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
            session.post(f"{admin}/reload") as response,
        ):
            answer = _Answer() if response.status in (401, 404, 405) else await _decoded(response)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise fail(f"no answer from {admin}: {str(error) or type(error).__name__}") from None
    if response.status == 200:
        return sum(worker.get("state") == "ready" for worker in answer.workers)
    reasons = {
        401: "the admin port wants its secret: --admin-secret or NEARSAY_ADMIN_SECRET",
        404: "this proxy is one process: set `workers` in its config to reload without a break",
    }
    raise fail(answer.error or reasons.get(response.status, f"HTTP {response.status}"))


class _Answer(msgspec.Struct):
    workers: list[dict[str, object]] = []
    error: str = ""


async def _decoded(response: aiohttp.ClientResponse) -> _Answer:
    return msgspec.json.decode(await response.read(), type=_Answer)
