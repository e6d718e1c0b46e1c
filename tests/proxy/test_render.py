from __future__ import annotations

import orjson

from nearsay.wire.messages import SegmentText, Translated, TranslatedText, Update, WordPair
from proxy import render

from .test_catalogue import CATALOGUE


def test_the_answer() -> None:
    segment = SegmentText("Guten Morgen", 0, 12, "edge", "m@1")
    answer = Translated(
        (
            TranslatedText("Guten Morgen", "en", "edge", "m@1", segments=(segment,)),
            TranslatedText("Ja", "en", "edge", "m@1", degraded=True, degraded_reason="origin_unavailable"),
        ),
        {},
        1.0,
    )
    assert orjson.loads(
        render.envelope(render.translations(answer), {"parse": 0.1}, "r1", region="eu", routing="v1@abc")
    ) == {
        "translations": [
            {
                "text": "Guten Morgen",
                "source": "en",
                "tier": "edge",
                "model": "m@1",
                "segments": [{"text": "Guten Morgen", "start": 0, "end": 12, "tier": "edge", "model": "m@1"}],
            },
            {
                "text": "Ja",
                "source": "en",
                "tier": "edge",
                "model": "m@1",
                "degraded": True,
                "degraded_reason": "origin_unavailable",
            },
        ],
        "stages_ms": {"parse": 0.1},
        "request_id": "r1",
        "region": "eu",
        "routing": "v1@abc",
    }


def test_what_was_asked_for_besides() -> None:
    answer = TranslatedText(
        "Ja", "en", "origin", "m@1", bias=0.2, masked=1, alternatives=("Jawohl",), alignment=(WordPair(0, 3, 0, 2),)
    )
    assert orjson.loads(render.translations(Translated((answer,), {}, 1.0))) == [
        {
            "text": "Ja",
            "source": "en",
            "tier": "origin",
            "model": "m@1",
            "bias": 0.2,
            "masked": 1,
            "alternatives": ["Jawohl"],
            "alignment": [[0, 3, 0, 2]],
        }
    ]


def test_an_update() -> None:
    update = Update(1, 2, 3, "partial", "Guten", gap=" ", start=4, end=9, tier="origin", model="m@1")
    assert orjson.loads(render.update(update)) == {
        "item": 1,
        "segment": 2,
        "revision": 3,
        "text": "Guten",
        "gap": " ",
        "start": 4,
        "end": 9,
        "tier": "origin",
        "model": "m@1",
    }


def test_models_in_the_openai_list_shape() -> None:
    listed = orjson.loads(render.models(CATALOGUE))
    assert listed["object"] == "list"
    one = listed["data"][0]
    assert {"id", "object", "created", "owned_by"} <= one.keys() and one["created"] == 1_700_000_000
    assert (one["id"], one["object"], one["source"], one["target"], one["tier"]) == (
        "en-de-edge@1",
        "model",
        "en",
        "de",
        "edge",
    )


def test_languages() -> None:
    listed = orjson.loads(render.languages(CATALOGUE))
    assert [language["code"] for language in listed["languages"]] == ["en", "pt"]
