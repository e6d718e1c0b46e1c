"""What a user sees through three real processes: translations per tier, streams, errors."""

from __future__ import annotations

import json
import re
import urllib.request
from typing import Any

import pytest
from typer.testing import CliRunner

from nearsay import Client
from nearsay.cli.main import app
from nearsay.wire.errors import InvalidRequest
from nearsay.wire.messages import STAGES
from tests.e2e.stack import ROOT, Stack, post

pytestmark = pytest.mark.e2e

GREETING = "Good morning, how are you?"
PARAGRAPHS = (
    "The library opens at nine. Please bring your card.\n\n"
    "We moved to the new house last week. The garden is small, but the children like it.\n\n"
    "  Thank you for your help!\n"
)


def translate(stack: Stack, **fields: Any) -> dict[str, Any]:
    status, answer = post(stack["proxy"].url, {"text": GREETING, "source": "en", **fields})
    assert status == 200, answer
    return answer


@pytest.mark.parametrize(
    ("target", "tier", "words"),
    [("de", "edge", {"Guten", "Morgen"}), ("pt", "edge", {"Bom", "dia"}), ("pt", "origin", {"Bom", "dia"})],
)
def test_a_greeting_comes_back(stack: Stack, target: str, tier: str, words: set[str]) -> None:
    [translation] = translate(stack, target=target, tier=tier)["translations"]
    assert words <= set(translation["text"].replace(",", " ").split()), translation
    assert translation["tier"] == tier
    assert "@" in translation["model"]


@pytest.mark.parametrize("tier", ["edge", "origin"])
def test_stages_sum_to_the_whole(stack: Stack, tier: str) -> None:
    stages = translate(stack, target="pt", tier=tier)["stages_ms"]
    assert set(stages) - {"e2e"} <= set(STAGES)
    assert all(value >= 0 for value in stages.values()), stages
    assert stages["edge_run" if tier == "edge" else "decode"] > 0


def test_three_paragraphs_stream_from_the_origin_with_their_layout(stack: Stack) -> None:
    texts: dict[int, str] = {}
    gaps: dict[int, str] = {}
    with Client(stack["proxy"].url) as client:
        for event in client.stream(PARAGRAPHS, "en", "pt", tier="origin"):
            if hasattr(event, "segment"):
                texts[event.segment], gaps[event.segment] = event.text, event.gap
            else:
                result = event.result
    assert len(texts) >= 5
    assert result.text == "".join(gaps[n] + texts[n] for n in sorted(texts)) + "\n"
    assert [len(part) > 10 for part in result.text.split("\n\n")] == [True] * 3


def test_refine_shows_a_draft_then_the_final(stack: Stack) -> None:
    with Client(stack["proxy"].url) as client:
        events = list(client.stream(GREETING, "en", "de", tier="refine"))
    kinds = [type(event).__name__ for event in events]
    assert kinds[0] == "Draft"
    assert kinds[-2:] == ["SegmentDone", "Done"]
    assert events[0].tier == "edge" and events[-2].tier == "origin"


def test_sse_carries_the_same_answer(stack: Stack) -> None:
    request = urllib.request.Request(
        f"{stack['proxy'].url}/v1/translate",
        json.dumps({"text": PARAGRAPHS, "source": "en", "target": "pt", "stream": True}).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-accel-buffering"] == "no"
        events = [part.split("\n") for part in answer.read().decode().split("\n\n") if part.startswith("event:")]
    assert events[-1][0] == "event: done"
    done = json.loads(events[-1][1].removeprefix("data: "))
    [plain] = translate(stack, text=PARAGRAPHS, target="pt")["translations"]
    assert done["translations"][0]["text"] == plain["text"]


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"text": "", "target": "de"}, 400, "empty_text"),
        ({"target": "xx"}, 400, "unknown_language"),
        ({"source": "auto", "target": "de"}, 400, "detection_unavailable"),
        ({"source": "de", "target": "pt"}, 400, "unsupported_pair"),
        ({"text": "a\ud800b", "target": "de"}, 400, "invalid_text"),
        ({"text": "a\0b", "target": "de"}, 400, "invalid_text"),
        ({"text": "x" * 1_000_000, "target": "de"}, 413, "text_too_long"),
        ({"text": 7, "target": "de"}, 400, "invalid_request"),
        ({"text": "hi", "target": "de", "tier": "moon"}, 400, "invalid_request"),
    ],
)
def test_bad_input_gets_a_clear_error(stack: Stack, fields: dict[str, Any], status: int, code: str) -> None:
    got, problem = post(stack["proxy"].url, {"text": GREETING, "source": "en", **fields})
    assert (got, problem["code"]) == (status, code), problem
    assert problem["title"] and problem["status"] == status


def test_the_sdk_raises_the_same_codes(stack: Stack) -> None:
    for transport in ("link", "http"):
        with Client(stack["proxy"].url, transport=transport) as client, pytest.raises(InvalidRequest) as caught:
            client.translate("hello", "en", "xx")
        assert caught.value.code == "unknown_language"


def test_languages_and_models_are_listed(stack: Stack) -> None:
    with urllib.request.urlopen(f"{stack['proxy'].url}/v1/models", timeout=10) as answer:
        models = json.load(answer)
    assert models["object"] == "list"
    assert {"edge", "origin"} == {model["tier"] for model in models["data"]}
    with urllib.request.urlopen(f"{stack['proxy'].url}/v1/languages", timeout=10) as answer:
        assert "en" in answer.read().decode()


def test_every_service_counts_its_stages(stack: Stack) -> None:
    translate(stack, target="pt", tier="origin")
    for name in ("proxy", "edge", "origin"):
        assert "nearsay_stage_seconds_bucket" in stack[name].admin("/metrics"), name
        assert stack[name].admin("/stats")["state"] == "ready"
    stages = {(row["stage"], row["tier"]) for row in stack["proxy"].admin("/stats")["stages"]}
    assert {("e2e", "origin"), ("decode", "origin"), ("unaccounted", "origin")} <= stages


def test_the_readme_example_runs(stack: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 1 and "http://127.0.0.1:8100" in blocks[0]
    exec(blocks[0].replace("http://127.0.0.1:8100", stack["proxy"].url), {})
    printed = capsys.readouterr().out
    assert "Guten Morgen" in printed and "Draft" in printed and "SegmentDone" in printed


def test_interactive_texts_overtake_thirty_bulk_texts_that_are_being_decoded(stack: Stack) -> None:
    result = CliRunner().invoke(app, ["lab", "overtake", "--url", stack["proxy"].url, "--json", "--interactive", "4"])
    assert result.exit_code == 0, result.output
    passages = json.loads(result.stdout)["passages"]
    bulk = [passage for passage in passages if passage["priority"] == "batch"]
    mine = [passage for passage in passages if passage["priority"] == "interactive"]
    assert (len(bulk), len(mine)) == (30, 4)
    assert all(passage["overtook"] > 0 for passage in mine), passages
    assert mine[0]["overtook"] > 5  # of those that were decoding already
    assert max(passage["ended_s"] for passage in mine) < max(passage["ended_s"] for passage in bulk)
    gauges = stack["origin"].admin("/stats")["gauges"]
    assert gauges["paused_rows"] > 0
