"""`nearsay keys new`: make an API key. The key is shown once and kept nowhere; the config gets its hash."""

from __future__ import annotations

import re
import secrets
from hashlib import sha256
from typing import Annotated

import msgspec
import typer

from nearsay.cli.console import EXIT_USAGE, fail, note, write
from nearsay.cli.options import AsJson

PREFIX = "nsk_"  # so that a scanner for leaked secrets can know it
KEY_BYTES = 32  # of chance: why a plain hash is enough (proxy/core/keys.py)
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")

app = typer.Typer(help="API keys of tenants.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """API keys of tenants."""


@app.command()
def new(
    tenant: Annotated[str, typer.Option(help="Whose key it will be.")] = "default",
    as_json: AsJson = False,
) -> None:
    """Make a key: print it, once, and the lines for the routing config that let it in."""
    if not _NAME.fullmatch(tenant):
        raise fail(f"{tenant!r}: a tenant's name is made of a-z, 0-9, and _ . - after the first", EXIT_USAGE)
    key = PREFIX + secrets.token_urlsafe(KEY_BYTES)
    hashed = "sha256:" + sha256(key.encode()).hexdigest()
    if as_json:
        write(msgspec.json.encode({"tenant": tenant, "key": key, "hash": hashed}).decode() + "\n")
        return
    write(f'{key}\n\n[tenants."{tenant}"]\nkeys = ["{hashed}"]\n')
    note("The first line is the key: it is shown this once. The rest is for the routing config, which keeps the hash;")
    note("a tenant may have several keys, so that a new one can be handed out before the old one is taken away.")
