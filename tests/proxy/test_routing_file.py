from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from aiohttp.test_utils import make_mocked_request

from nearsay.runtime.config import ConfigError
from nearsay.runtime.metrics import Metrics
from proxy.app import build
from proxy.config import ProxyConfig
from proxy.core.routing_check import Routing
from proxy.routing_file import RoutingFile, load
from tests.kit.fake_edge import FakeEdge
from tests.kit.proxy_room import proxy_room

GOOD = '[regions.eu]\nedges = ["ws://edge-0/link"]\n'


class Watched:
    """A file on disk, and what came of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.applied: list[str] = []
        self.metrics = Metrics("proxy")
        self.write(GOOD)
        self.file = RoutingFile(path, self.apply, self.metrics)

    async def apply(self, routing: Routing) -> None:
        self.applied.append(routing.config.version)

    def write(self, text: str) -> None:
        """As an editor does: another file under the same name."""
        new = self.path.with_suffix(".new")
        new.write_text(text)
        new.rename(self.path)

    async def look(self, times: int = 2) -> None:
        for _ in range(times):
            await self.file.look()

    @property
    def errors(self) -> float:
        return float(self.metrics.snapshot()["counters"].get("routing_errors", 0.0))


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "routing.toml")


async def test_a_change_is_taken_over_once(watched: Watched) -> None:
    await watched.look(5)
    assert watched.applied == []
    watched.write('version = "two"\n' + GOOD)
    await watched.look(5)
    assert watched.applied == ["two"]
    assert watched.file.routing.config.version == "two"


async def test_a_file_that_is_being_written_is_left_alone(watched: Watched) -> None:
    """Half a TOML file is a TOML file, too often."""
    watched.write('version = "tw')
    await watched.look(1)
    watched.write('version = "two"\n')
    await watched.look(1)
    watched.write('version = "two"\n' + GOOD)
    await watched.look(1)
    assert (watched.applied, watched.errors) == ([], 0.0)
    await watched.look(1)
    assert watched.applied == ["two"]


async def test_the_last_good_one_stays(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    bad = GOOD.replace("eu", "EU") + "cost = -1\ncosts = 1\nedge = 1\nin_flight_max = 0\n"
    watched.write(bad)
    with caplog.at_level(logging.ERROR):
        await watched.look(10)
    assert (watched.applied, watched.errors, len(caplog.records)) == ([], 1.0, 1)
    assert len(watched.file.problems) == 5
    assert all(problem.startswith("routing.toml line ") for problem in watched.file.problems)
    await watched.file.reload()
    assert len(caplog.records) == 1, "the same again is counted, not logged"
    watched.write(GOOD)
    await watched.look()
    assert watched.file.problems == [] and watched.applied == [], "it is what is in force"


async def test_a_file_that_goes_away_changes_nothing(watched: Watched) -> None:
    watched.path.unlink()
    await watched.look(3)
    assert watched.file.problems == ["routing.toml: No such file or directory"]
    assert watched.applied == []


async def test_comments_change_nothing(watched: Watched) -> None:
    watched.write(GOOD + "# more\n")
    await watched.look()
    assert watched.applied == []


@pytest.mark.parametrize("example", ["config/routing.toml", "regions/routing.toml"])
def test_the_examples_are_good(example: str) -> None:
    assert load(Path(__file__).parents[2] / "infra" / example).config.regions.keys() == {"eu", "us", "ap"}


def test_what_can_not_be_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "routing.toml"
    with pytest.raises(ConfigError, match=r"routing.toml: No such file"):
        load(path)
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(path)
    path.write_text("")
    with pytest.raises(ConfigError, match=r"routing.toml line 1: regions: is missing"):
        build(ProxyConfig(routing=path))


async def test_a_reload_reaches_the_running_proxy_and_the_admin_port_tells(tmp_path: Path) -> None:
    path = tmp_path / "routing.toml"
    path.write_text('version = "one"\n' + GOOD)
    async with proxy_room(FakeEdge(), FakeEdge(), config=ProxyConfig(routing=path)) as room:
        assert (await room.post({}))[1]["routing"].startswith("one@")
        path.write_text('version = "two"\n' + GOOD.replace("edge-0", "edge-1"))
        room.proxy.reload()
        await room.until(lambda: room.proxy.pool.fleet.label.startswith("two@"))
        assert (await room.post({}))[1]["routing"].startswith("two@")
        path.write_text("version = 2")
        room.proxy.reload()
        await room.until(lambda: bool(room.proxy._routing and room.proxy._routing.problems))
        assert (await room.post({}))[1]["routing"].startswith("two@")
        [route] = room.proxy.admin_routes()
        answer = await route.handler(make_mocked_request("GET", "/routing"))  # type: ignore[call-arg,misc]
        shown = json.loads(answer.body)  # type: ignore[union-attr,arg-type]
        assert shown["fleet"]["label"].startswith("two@")
        assert len(shown["problems"]) == 2 and "version" in shown["problems"][1]
