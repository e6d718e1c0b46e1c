from __future__ import annotations

import tomllib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from nearsay.cli.ports import DEFAULTS
from nearsay.cli.regions import REGIONS, REGIONS_MAX
from nearsay.cli.stack import StackOptions, choose_ports, make_stack, toml
from proxy.core.routing_check import read


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


def test_regions_have_an_edge_and_a_distance_each(tmp_path: Path) -> None:
    stack = make_stack(StackOptions(port=0, regions=3), tmp_path)
    assert list(stack.commands) == ["origin", "edge-eu", "edge-us", "edge-ap", "proxy"]
    assert {command[2] for name, command in stack.commands.items() if name.startswith("edge")} == {"edge_worker"}
    found = {name: tomllib.loads(Path(command[-1]).read_text()) for name, command in stack.commands.items()}
    assert "edges" not in found["proxy"] and found["proxy"]["routing"] == str(stack.routing)
    assert (
        found["edge-us"]["origins"] == found["edge-eu"]["origins"] == [f"ws://127.0.0.1:{found['origin']['port']}/link"]
    )
    assert [distance.edge.port for distance in stack.distances] == [
        found[name]["port"] for name in ("edge-eu", "edge-us", "edge-ap")
    ]
    assert stack.routing is not None
    config = read(stack.routing.read_text()).config
    assert [region.edges for region in config.regions.values()] == [
        (f"ws://127.0.0.1:{distance.port}/link",) for distance in stack.distances
    ]
    doors = [port for config in found.values() for port in (config["port"], config["admin_port"])]
    assert len({*doors, *(distance.port for distance in stack.distances)}) == 13
    assert "NEARSAY_EDGE_ORIGINS" in stack.hidden and "NEARSAY_PROXY_ROUTING" in stack.hidden


def test_edges_of_regions_have_the_ports_after_the_first(tmp_path: Path) -> None:
    ports = choose_ports(StackOptions(regions=REGIONS_MAX))
    assert [ports[region.service].port for region in REGIONS] == [8110, 8112, 8114, 8116, 8118]
    assert ports["origin"].port == 8120


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
