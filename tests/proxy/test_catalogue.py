from __future__ import annotations

import msgspec
import pytest

from nearsay.wire.errors import InvalidRequest
from nearsay.wire.messages import Hello, LoadReport, ModelInfo, ServedTier
from proxy.core.catalogue import Catalogue
from proxy.core.endpoint import Endpoint
from proxy.core.limits import AttemptLimits
from proxy.core.pool import Pool


def model(source: str, target: str, tier: ServedTier = "edge") -> ModelInfo:
    return ModelInfo(f"{source}-{target}-{tier}", "1", source, target, tier, "s", "t", created=1_700_000_000)


def endpoint(
    name: str, *models: ModelInfo, origin_pairs: tuple[str, ...] = (), load: LoadReport | None = None
) -> Endpoint:
    made = Endpoint(name, Pool(AttemptLimits(), 0.0), 0.0)
    made.update(up=True, hello=Hello("edge", models=models, origin_pairs=origin_pairs), load=load)
    return made


def code_of(catalogue: Catalogue, *asked: str) -> str:
    with pytest.raises(InvalidRequest) as refused:
        catalogue.resolve(*asked)  # type: ignore[arg-type]
    return refused.value.code


CATALOGUE = Catalogue(
    [endpoint("a", model("en", "de"), model("en", "pt"), origin_pairs=("en-pt",)), endpoint("b", model("pt", "en"))]
)


def test_languages_lists_every_pair_with_its_tiers() -> None:
    german = {"code": "de", "name": "German", "tiers": ["edge"]}
    portuguese = {"code": "pt", "name": "Portuguese", "tiers": ["edge", "origin"]}
    english = {"code": "en", "name": "English", "tiers": ["edge"]}
    assert CATALOGUE.languages() == [
        {"code": "en", "name": "English", "targets": [german, portuguese]},
        {"code": "pt", "name": "Portuguese", "targets": [english]},
    ]


def test_each_listed_pair_resolves_in_each_listed_tier() -> None:
    assert CATALOGUE.resolve("en", "pt", "origin") == ("en", "pt")
    assert CATALOGUE.resolve("en", "pt", "refine") == ("en", "pt")
    assert CATALOGUE.resolve("en", "de", "edge") == ("en", "de")
    assert CATALOGUE.resolve("pt", "en", "auto") == ("pt", "en")


def test_what_is_not_served_is_refused_by_its_own_code() -> None:
    assert code_of(CATALOGUE, "en", "xx", "auto") == "unknown_language"
    assert code_of(CATALOGUE, "xx", "en", "auto") == "unknown_language"
    assert code_of(CATALOGUE, "de", "en", "auto") == "unsupported_pair"
    assert code_of(CATALOGUE, "en", "en", "auto") == "unsupported_pair"
    assert code_of(CATALOGUE, "en", "de", "origin") == "tier_unavailable"
    assert code_of(CATALOGUE, "en", "de", "refine") == "tier_unavailable"


def test_codes_compare_without_case_and_separator() -> None:
    catalogue = Catalogue([endpoint("a", model("en", "pt-BR"))])
    assert catalogue.resolve("EN", "pt_br", "auto") == ("en", "pt-BR")
    assert catalogue.languages()[0]["targets"] == [{"code": "pt-BR", "name": "Portuguese (Brazil)", "tiers": ["edge"]}]


def test_an_edge_that_is_away_still_counts() -> None:
    away = endpoint("a", model("en", "de"))
    away.update(up=False, hello=None, load=None)
    assert Catalogue([away]).resolve("en", "de", "auto") == ("en", "de")
    assert not away.available


def test_nothing_is_known_before_the_first_hello() -> None:
    assert not Catalogue([Endpoint("a", Pool(AttemptLimits(), 0.0), 0.0)])


def test_a_load_report_may_bring_an_origin_that_the_hello_did_not_know() -> None:
    late = endpoint("a", model("en", "de"), load=LoadReport("ready", origin_ready=("en-de",)))
    assert Catalogue([late]).resolve("en", "de", "origin") == ("en", "de")


def test_models_are_listed_once() -> None:
    catalogue = Catalogue([endpoint("a", model("en", "de")), endpoint("b", model("en", "de"), model("en", "pt"))])
    assert [m.name for m in catalogue.models] == ["en-de-edge@1", "en-pt-edge@1"]


def test_an_origin_that_is_down_stays_known_until_its_edge_restarts() -> None:
    edge = Endpoint("a", Pool(AttemptLimits(), 0.0), 0.0)
    hello = Hello("edge", instance="one", models=(model("en", "de"),))
    edge.update(up=True, hello=hello, load=LoadReport("ready", origin_ready=("en-de",)))
    edge.update(up=True, hello=hello, load=LoadReport("ready"))
    assert edge.serves("en-de", "origin")
    assert not edge.origin_ready
    edge.update(up=True, hello=msgspec.structs.replace(hello, instance="two"), load=None)
    assert not edge.serves("en-de", "origin")


def test_a_report_takes_the_place_of_the_hello() -> None:
    """A model was swapped for a newer version since the link came up."""
    hello = Hello("edge", models=(model("en", "de"),))
    newer = msgspec.structs.replace(model("en", "de"), version="2")
    edge = Endpoint("a", Pool(AttemptLimits(), 0.0), 0.0)
    edge.update(up=True, hello=hello, load=LoadReport("ready"))
    assert [m.name for m in edge.models] == ["en-de-edge@1"], "a report that tells of no models changes nothing"
    edge.update(up=True, hello=hello, load=LoadReport("ready", models=(newer, model("en", "de", "origin"))))
    assert [m.name for m in edge.models] == ["en-de-edge@2", "en-de-origin@1"]
    assert edge.serves("en-de", "origin")
