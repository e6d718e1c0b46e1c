"""A sentence typed word by word, through the command line and three real processes; and what only an origin can do."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from nearsay import Client
from nearsay.client import Decoding, Stability
from tests.e2e.stack import READY_S, ROOT, Stack, post

pytestmark = pytest.mark.e2e

SENTENCE = "I do not know where the old library is, but I can ask my sister."


def cli(*arguments: str, stdin: str = "") -> str:
    """Standard output of a `nearsay` command that went well."""
    command = [sys.executable, "-c", "from nearsay.cli.main import app; app()", *arguments]
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, cwd=ROOT, timeout=READY_S, check=False, env=None
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_typing_word_by_word_reuses_work_and_stats_show_it(stack: Stack) -> None:
    words = SENTENCE.split()
    states = [" ".join(words[:end]) for end in range(1, len(words) + 1)]
    typed = [*states, states[-1]]
    said = cli(
        "translate", "--url", stack["proxy"].url, "--to", "de", "--session", "typing", stdin="\n".join(typed)
    ).splitlines()
    assert len(said) == len(typed) and said[-1] == said[-2] and len(said[-1].split()) > 8
    with Client(stack["proxy"].url) as client:
        assert client.translate(SENTENCE, "en", "de", tier="origin").text == said[-1], "what is finished is plain"
    gauges = stack["origin"].admin("/stats")["gauges"]
    assert gauges["session_segments"] == len(typed) and gauges["session_segments_reused"] >= 1
    assert gauges["session_passes"] < gauges["session_plain_passes"], gauges
    assert gauges["session_leaning"] >= len(words) - 3
    shown = cli("stats", "--admin", f"http://127.0.0.1:{stack['origin'].ready['admin_port']}")
    assert "segments answered without decoding" in shown and "decoder passes saved" in shown


def test_a_session_holds_on_to_its_words_as_firmly_as_asked(stack: Stack) -> None:
    with Client(stack["proxy"].url) as client:

        def grown(bias: float, session: str) -> Any:
            for text in ("I think I know that", "I think I know that girl over"):
                result = client.translate(
                    text, "en", "de", session=session, stability=Stability(bias=bias), tier="origin"
                ).translations[0]
                yield result

        first, then = grown(0.97, "firm")
        assert (first.bias, then.bias) == (0.0, 0.97) and then.text.startswith(first.text)
        plain = list(grown(0.0, "plain"))
        assert plain[1].bias == 0.0
        held = client.translate("I think I know", "en", "de", stability=Stability(mask=1), tier="origin").translations[
            0
        ]
        whole = client.translate("I think I know", "en", "de", tier="origin").translations[0]
        assert held.masked == 1 and whole.masked == 0 and whole.text.startswith(held.text) and held.text != whole.text


@pytest.mark.parametrize("target", ["de", "pt"])
def test_alternatives_alignment_and_beams_reach_the_origin(stack: Stack, target: str) -> None:
    text = "The house is old. The garden is small."
    fields = {"text": text, "source": "en", "target": target, "alternatives": 3, "alignment": True, "beam": 5}
    status, answer = post(stack["proxy"].url, fields)
    assert status == 200, answer
    [found] = answer["translations"]
    assert found["tier"] == "origin" and len(found["alternatives"]) == 3
    assert len({found["text"], *found["alternatives"]}) == 4
    pairs = {(text[a:b], found["text"][c:d]) for a, b, c, d in found["alignment"]}
    names = {"de": {("house", "Haus"), ("old.", "alt."), ("garden", "Garten")}, "pt": {("house", "casa")}}
    assert names[target] <= pairs, pairs
    with Client(stack["proxy"].url) as client:
        one = client.translate(text, "en", target, decoding=Decoding(alternatives=8)).translations[0]
        assert 3 <= len(one.alternatives) <= 8
    for wrong in ({"beam": 9}, {"alternatives": 9}, {"tier": "edge", "alternatives": 1}, {"stability": {"bias": 0.5}}):
        status, problem = post(stack["proxy"].url, {"text": text, "source": "en", "target": target, **wrong})
        assert (status, problem["code"]) == (400, "invalid_request"), problem
