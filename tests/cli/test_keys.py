from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from nearsay.cli.main import app
from proxy.core.keys import Keys
from proxy.core.routing_check import read
from proxy.core.routing_config import Tenant


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["keys", "new", *arguments])
    assert result.exit_code == code, result.output
    return result.stdout


@pytest.mark.parametrize("name", ["acme-1", "acme.example", "0"])
def test_the_printed_lines_let_the_printed_key_in(name: str) -> None:
    key, _, lines = run("--tenant", name).partition("\n")
    tenants = read('[regions.eu]\nedges = ["ws://a/link"]\n' + lines).config.tenants
    keys = Keys((), tenants, open_door=True)
    assert keys.tenant(keys.id(key)) == name
    assert key not in lines


def test_json_for_programs() -> None:
    made = json.loads(run("--json"))
    assert made["tenant"] == "default" and made["key"].startswith("nsk_")
    keys = Keys((), {"default": Tenant(keys=(made["hash"],))}, open_door=True)
    assert keys.tenant(keys.id(made["key"])) == "default"


def test_no_two_keys_are_the_same_and_none_can_be_guessed() -> None:
    made = {run().partition("\n")[0] for _ in range(20)}
    assert len(made) == 20 and all(len(key) == len("nsk_") + 43 for key in made)


@pytest.mark.parametrize("name", ["", "a b", 'a"]', "x" * 64, "ä", "A", "-a"])
def test_a_name_that_no_table_can_have_is_refused(name: str) -> None:
    run("--tenant", name, code=2)
