from __future__ import annotations

import tomllib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from nearsay.cli.ports import DEFAULTS
from nearsay.cli.stack import StackOptions, choose_ports, make_stack, toml


def configs(options: StackOptions, folder: Path) -> dict[str, dict[str, object]]:
    stack = make_stack(options, folder)
    return {name: tomllib.loads(Path(command[-1]).read_text()) for name, command in stack.commands.items()}


def test_services_find_each_other(tmp_path: Path) -> None:
    models = tmp_path / "mödels"
    overrides = {"edge": {"threads": 2}}
    found = configs(StackOptions(port=0, models=(models,), overrides=overrides), tmp_path)
    assert list(found) == ["origin", "edge", "proxy"], "the far end starts first"
    assert found["edge"]["origins"] == [f"ws://127.0.0.1:{found['origin']['port']}/link"]
    assert found["proxy"]["edges"] == [f"ws://127.0.0.1:{found['edge']['port']}/link"]
    assert found["edge"]["models"] == found["origin"]["models"] == [str(models)]
    assert found["edge"]["threads"] == 2
    doors = [port for config in found.values() for port in (config["port"], config["admin_port"])]
    assert len(set(doors)) == 6 and 0 not in doors


def test_default_ports(tmp_path: Path) -> None:
    stack = make_stack(StackOptions(), tmp_path)
    assert stack.ports == DEFAULTS
    assert stack.url == "http://127.0.0.1:8100"


def test_some_ports_given() -> None:
    ports = choose_ports(StackOptions(port=9000, edge_port=0))
    assert (ports["proxy"].port, ports["proxy"].admin_port, ports["origin"].port) == (9000, 9001, 8120)
    assert ports["edge"].port not in (0, DEFAULTS["edge"].port)


def test_without_an_origin(tmp_path: Path) -> None:
    found = configs(StackOptions(port=0, with_origin=False), tmp_path)
    assert list(found) == ["edge", "proxy"]
    assert found["edge"]["origins"] == []


def test_environment_that_would_override_is_hidden(tmp_path: Path) -> None:
    hidden = make_stack(StackOptions(), tmp_path).hidden
    assert {"NEARSAY_PROXY_PORT", "NEARSAY_EDGE_ORIGINS", "NEARSAY_ORIGIN_HOST"} <= hidden
    assert "NEARSAY_EDGE_THREADS" not in hidden


VALUES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])), st.integers(-(2**53), 2**53), st.lists(st.text('aä\\"\n🙂'))
)


@given(st.dictionaries(st.from_regex("[a-z_]{1,8}", fullmatch=True), VALUES, max_size=5))
def test_toml_reads_back(fields: dict[str, object]) -> None:
    assert tomllib.loads(toml(fields)) == fields  # type: ignore[arg-type]
