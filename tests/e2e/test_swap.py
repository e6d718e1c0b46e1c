"""Models are swapped under three real processes while people translate: nobody's request fails."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest
from typer.testing import CliRunner

from nearsay.cli.main import app
from tests.e2e.stack import Stack
from tests.e2e.test_faults import wait_until
from tests.e2e.tiny_models import publish
from tests.kit.tiny_vocab import SENTENCES

pytestmark = pytest.mark.e2e

RATE_S = 0.02  # a request every so often, come what may
TEXTS = ("the cat sat on the mat", "the dog looked at the cat", "good morning, how are you today?")
NAMES = {"origin": "en-de-tiny-teacher@{}", "edge": "en-de-tiny@{}"}


class Heard(NamedTuple):
    """One answer: when it was asked for and when it came, of which tier, by which model."""

    asked: float
    came: float
    tier: str
    status: int
    model: str
    degraded: str


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    publish(folder / "en-de", 1)
    return folder


@pytest.fixture(scope="module")
def stack(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    made = Stack(tmp_path_factory.mktemp("stack"))
    here = {"models": [str(models)], "pairs": ["en-de"]}
    try:
        origin = made.add("origin", "origin", {**here, "swap_grace_s": 0.5})
        edge = made.add("edge", "edge_worker", {**here, "origins": [origin.link_url]})
        made.add("proxy", "proxy", {"edges": [edge.link_url]})
        wait_until(lambda: len(listed(made)) == 2)
        yield made
    finally:
        made.close()


def listed(stack: Stack) -> list[str]:
    with urllib.request.urlopen(f"{stack['proxy'].url}/v1/models", timeout=10) as answer:
        return sorted(model["id"] for model in json.load(answer)["data"])


def reload(stack: Stack) -> tuple[int, str]:
    """`nearsay models reload`: exit status and output."""
    admins = [f"http://127.0.0.1:{stack[name].ready['admin_port']}" for name in ("origin", "edge", "proxy")]
    arguments = ["models", "reload", *(part for admin in admins for part in ("--admin", admin))]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    return result.exit_code, result.output


class Load:
    """An open loop: requests leave at their times, whatever became of earlier ones."""

    def __init__(self, url: str) -> None:
        self.heard: list[Heard] = []
        self._url = f"{url}/v1/translate"

    async def __aenter__(self) -> Load:
        self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        self._group = asyncio.TaskGroup()
        await self._group.__aenter__()
        self._loop = self._group.create_task(self._ask_on())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._loop.cancel()
        try:
            await self._group.__aexit__(*error)  # type: ignore[arg-type]
        finally:
            await self._http.close()

    async def until(self, done: Callable[[list[Heard]], bool]) -> None:
        """Until enough has been heard."""
        async with asyncio.timeout(30):
            while not done(self.heard):  # noqa: ASYNC110 (other processes answer)
                await asyncio.sleep(0.01)

    async def hears_of(self, model: str) -> None:
        """Until an answer comes by a model."""
        await self.until(lambda heard: any(answer.model == model for answer in heard))

    async def _ask_on(self) -> None:
        loop = asyncio.get_running_loop()
        due, number = loop.time(), 0
        while True:
            self._group.create_task(self._one(number))
            due, number = due + RATE_S, number + 1
            await asyncio.sleep(max(0.0, due - loop.time()))

    async def _one(self, number: int) -> None:
        tier = ("origin", "edge")[number % 2]
        body = {"text": TEXTS[number % 3], "source": "en", "target": "de", "tier": tier, "deadline_ms": 20_000}
        asked = time.monotonic()
        async with self._http.post(self._url, json=body) as answer:
            content = await answer.json()
            (text,) = content.get("translations", [{}])
            came = time.monotonic()
            named = text.get("model", content.get("code", "")), text.get("degraded_reason", "")
            self.heard.append(Heard(asked, came, tier, answer.status, *named))


def newest(stack: Stack) -> int:
    return int(listed(stack)[0].rpartition("@")[2])


@pytest.mark.parametrize("sentences", [SENTENCES, SENTENCES[:6]], ids=["same vocabulary", "another vocabulary"])
async def test_no_request_fails_while_both_tiers_are_swapped(
    sentences: tuple[str, ...], stack: Stack, models: Path
) -> None:
    old = newest(stack)
    async with Load(stack["proxy"].url) as load:
        await load.hears_of(NAMES["origin"].format(old))
        await load.hears_of(NAMES["edge"].format(old))
        publish(models / "en-de", old + 1, sentences=sentences)
        began = time.monotonic()
        code, output = await asyncio.to_thread(reload, stack)
        ended = time.monotonic()
        assert code == 0, output
        for tier in ("edge", "origin"):
            assert f"{tier}: {NAMES[tier].format(old)} -> {NAMES[tier].format(old + 1)}" in output
            await load.hears_of(NAMES[tier].format(old + 1))
        late = time.monotonic()
        await load.until(lambda heard: sum(answer.asked > late for answer in heard) > 20)
    wrong = [heard for heard in load.heard if heard.status != 200 or heard.degraded]
    assert not wrong, wrong[:5]
    for tier, name in NAMES.items():
        answers = [heard for heard in load.heard if heard.tier == tier]
        assert {heard.model for heard in answers} == {name.format(old), name.format(old + 1)}
        assert {heard.model for heard in answers if heard.came < began} == {name.format(old)}
        # The origin's report reaches the edge a moment after the reload has been answered.
        assert {heard.model for heard in answers if heard.asked > ended + 0.5} <= {name.format(old + 1)}
    wait_until(lambda: listed(stack) == sorted(name.format(old + 1) for name in NAMES.values()))
    wait_until(lambda: {model["standing"] for model in stack["origin"].admin("/models")["models"]} == {"serving"})
    assert stack["origin"].admin("/readyz")["models"] == [NAMES["origin"].format(old + 1)]


async def test_a_damaged_version_changes_nothing_but_what_is_said(stack: Stack, models: Path) -> None:
    old = newest(stack)
    async with Load(stack["proxy"].url) as load:
        publish(models / "en-de", old + 1, sentences=SENTENCES[:6])
        for file in ("teacher/model.safetensors", "student/model.bin"):
            path = models / "en-de" / file
            path.write_bytes(path.read_bytes()[:-1] + b"x")
        code, output = await asyncio.to_thread(reload, stack)
        assert code == 1 and output.count("damaged: /") == 2, output
        count = len(load.heard)
        await load.until(lambda heard: len(heard) > count + 20)
    assert {heard.status for heard in load.heard} == {200}
    assert {heard.model for heard in load.heard} == {name.format(old) for name in NAMES.values()}
    assert stack["origin"].admin("/readyz")["models_left_out"] == {NAMES["origin"].format(old + 1): "damaged"}
