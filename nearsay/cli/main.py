"""The `nearsay` command: its parts by name. What each does and takes stands in the module of its name."""

from __future__ import annotations

from importlib import import_module, metadata
from typing import Annotated

import typer

from nearsay.cli import doctor, geoip, keys, lab, load, models, proxy, stats, translate, up
from nearsay.cli.console import EXIT_USAGE, fail
from nearsay.cli.options import Config, Overrides
from nearsay.cli.services import become, require_services

app = typer.Typer(
    name="nearsay",
    help="Self-hosted, low-latency machine translation.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
app.command("up")(up.command)


app.add_typer(proxy.app, name="proxy")


@app.command()
def edge(config: Config = None, overrides: Overrides = None) -> None:
    """Run an edge worker."""
    become("edge", config, overrides or ())


@app.command()
def origin(config: Config = None, overrides: Overrides = None) -> None:
    """Run an origin."""
    become("origin", config, overrides or ())


app.command("translate")(translate.command)
app.command("stats")(stats.command)
app.add_typer(models.app, name="models", help=models.show.__doc__)
app.command("doctor")(doctor.command)
app.command("load")(load.command)
app.add_typer(geoip.app, name="geoip")
app.add_typer(keys.app, name="keys")
app.add_typer(lab.app, name="lab")


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def distill(context: typer.Context) -> None:
    """Make models: corpus, teacher, student, export, gate (needs the extra `distill`)."""
    try:
        # Only when asked for: it imports torch, which takes seconds.
        distill_app = import_module("nearsay.distill.cli").app
    except ImportError as error:
        raise fail(f"can't import {error.name}: pip install 'nearsay[distill]'", EXIT_USAGE) from None
    distill_app(args=context.args, prog_name="nearsay distill")


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def route(context: typer.Context) -> None:
    """Check a routing config; explain where a request goes, and why."""
    require_services(("proxy",))
    # Only when asked for: the SDK's package hasn't got the proxy, whose own code decides here.
    import_module("nearsay.cli.route").app(args=context.args, prog_name="nearsay route")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"nearsay {metadata.version('nearsay')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Self-hosted, low-latency machine translation."""
