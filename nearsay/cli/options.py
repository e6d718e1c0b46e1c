"""Options that several commands share, each described once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nearsay.wire.messages import Tier

Url = Annotated[str, typer.Option("--url", envvar="NEARSAY_URL", help="The proxy.")]
Key = Annotated[str, typer.Option("--key", envvar="NEARSAY_KEY", help="API key, if the proxy asks for one.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Models = Annotated[list[Path] | None, typer.Option("--models", help="Folder of models, looked at first; repeatable.")]
TierName = Annotated[Tier, typer.Option(help="refine = the edge's draft at once, then the origin's answer.")]
Source = Annotated[str, typer.Option("--from", "-f", envvar="NEARSAY_FROM", help="Language of the text.")]
Target = Annotated[str, typer.Option("--to", "-t", envvar="NEARSAY_TO", help="Language to translate into.")]
Deadline = Annotated[float | None, typer.Option(help="Give up after this time.")]
Config = Annotated[Path | None, typer.Option("--config", help="TOML file; without one, the defaults.")]
AdminSecret = Annotated[
    str, typer.Option(envvar="NEARSAY_ADMIN_SECRET", help="Secret of the admin port, if it asks for one.")
]
Overrides = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a field; repeatable.")]


def admin_headers(secret: str) -> dict[str, str]:
    """What an admin port is shown."""
    return {"Authorization": f"Bearer {secret}"} if secret else {}
