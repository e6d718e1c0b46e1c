from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.routing_check import BYTES_MAX, Mistakes, read

GOOD = """\
version = "2026-10"
default_region = "eu"

[regions.eu]
edges = ["ws://10.0.0.1:8110/link"]
location = [50.1, 8.7]

[regions.us]
edges = ["wss://us.example/link"]
public = ["https://us.example"]
cost = 2

[spill]
margin_ms = 3

[pairs.en-de]
regions = ["eu", "us"]

[residency]
DE = ["eu"]

[tenants.acme]
keys = ["sha256:%s"]
regions = ["eu"]
""" % ("0a" * 32)


def told(text: str) -> list[str]:
    with pytest.raises(Mistakes) as caught:
        read(text)
    return [str(problem) for problem in caught.value.problems]


def changed(before: str, after: str) -> list[str]:
    assert before in GOOD
    return told(GOOD.replace(before, after))


def test_a_good_config() -> None:
    routing = read(GOOD)
    assert list(routing.config.regions) == ["eu", "us"]
    assert routing.config.regions["us"].cost == 2.0
    assert routing.config.residency == {"DE": ("eu",)}
    assert routing.label == f"2026-10@{routing.hash}" and len(routing.hash) == 8


def test_the_hash_is_of_what_it_says() -> None:
    assert read("# more\n" + GOOD.replace("cost = 2", "cost  =  2.0")).hash == read(GOOD).hash
    assert read(GOOD.replace("cost = 2", "cost = 3")).hash != read(GOOD).hash
    assert read(GOOD.replace('version = "2026-10"', "")).label == read(GOOD.replace('version = "2026-10"', "")).hash


def test_five_mistakes_are_five_problems_with_their_lines() -> None:
    text = (
        GOOD.replace('"eu"\n\n', '"ue"\n\n')
        .replace("cost", "costs")
        .replace("[50.1", "[150.1")
        .replace("margin_ms = 3", "margin_ms = -3")
        .replace('DE = ["eu"]', 'de = ["eu"]')
    )
    assert told(text) == [
        "line 2: default_region: there is no region 'ue'; there are: eu, us",
        "line 6: regions.eu.location: latitude is -90 to 90 and longitude -180 to 180 degrees, in this order",
        "line 11: regions.us.costs: no such key; did you mean 'cost'?",
        "line 14: spill.margin_ms: Expected 'float' >= 0.0",
        "line 20: residency.de: a country is two capital letters (ISO 3166-1); did you mean 'DE'?",
    ]


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("[regions.us]", "[regions.US]", "line 8: regions.US: a region's name"),
        ('["ws://10.0.0.1:8110/link"]', "[]", "line 5: regions.eu.edges: at least one"),
        ('["ws://10.0.0.1:8110/link"]', '["10.0.0.1:8110"]', "line 5: regions.eu.edges[0]: '10.0.0.1:8110' is no"),
        (
            '["ws://10.0.0.1:8110/link"]',
            '["ws://a:port/link"]',
            "line 5: regions.eu.edges[0]: 'ws://a:port/link' is no",
        ),
        ('"wss://us.example/link"', '\n"ws://10.0.0.1:8110/link"', "line 10: regions.us.edges[0]: 'ws://10.0.0.1:8110"),
        (
            '"wss://us.example/link"',
            '"wss://x/", "wss://x/"',
            "line 9: regions.us.edges[1]: 'wss://x/' is in region 'us'",
        ),
        ('["https://us.example"]', '["us.example"]', "line 10: regions.us.public[0]: 'us.example' is no"),
        ("[50.1, 8.7]", "[50.1]", "line 6: regions.eu.location: Expected 'array' of length 2, got 1"),
        ("[50.1, 8.7]", "[nan, 8.7]", "line 6: regions.eu.location: latitude is"),
        ("cost = 2", "cost = 0", "line 11: regions.us.cost: Expected 'float' > 0.0"),
        ("cost = 2", "cost = inf", "line 11: regions.us.cost: must be a finite number"),
        ("cost = 2", 'cost = "2"', "line 11: regions.us.cost: Expected 'float', got 'str'"),
        ("cost = 2", "in_flight_max = 0", "line 11: regions.us.in_flight_max: Expected 'int' >= 1"),
        ('version = "2026-10"', 'version = "a b"', "line 1: version: at most 64"),
        ("[pairs.en-de]", "[pairs.german]", "line 16: pairs.german: a pair is written like 'en-de'"),
        (
            '["eu", "us"]',
            '["eu", "usa"]',
            "line 17: pairs.en-de.regions[1]: there is no region 'usa'; did you mean 'us'?",
        ),
        ('DE = ["eu"]', 'DE = ["moon"]', "line 20: residency.DE[0]: there is no region 'moon'"),
        ('DE = ["eu"]', "DE = []", "line 20: residency.DE: without a region"),
        ('DE = ["eu"]', 'DEU = ["eu"]', "line 20: residency.DEU: a country is two capital letters (ISO 3166-1)"),
        ("0a0a", "0A0A", "line 23: tenants.acme.keys[0]: must be 'sha256:'"),
        (
            '"]\nregions = ["eu"]',
            '"]\nregion = ["eu"]',
            "line 24: tenants.acme.region: no such key; did you mean 'regions'?",
        ),
        ("[tenants.acme]", "[tenants.'a me']", "line 22: tenants.a me: a tenant's name"),
        ("[spill]", "[spil]", "line 13: spil: no such key; did you mean 'spill'?"),
        ("[spill]\nmargin_ms = 3", "spill = 3", "line 13: regions.us.spill: no such key"),
    ],
)
def test_each_mistake_has_its_line_and_name(before: str, after: str, problem: str) -> None:
    assert [line for line in changed(before, after) if line.startswith(problem)], changed(before, after)


def test_a_key_of_two_tenants() -> None:
    copied = GOOD + GOOD[GOOD.index("[tenants.acme]") :].replace("acme", "other")
    assert told(copied) == ["line 26: tenants.other.keys[0]: tenant 'acme' has this key already"]


def test_a_key_in_the_clear_is_not_repeated() -> None:
    assert "hunter2" not in str(changed("sha256:0a", "hunter2"))


def test_no_regions() -> None:
    assert told("") == ["line 1: regions: is missing"]
    assert told("\n[regions]\n") == ["line 2: regions: at least one region is needed, such as [regions.eu]"]
    assert told("[regions.eu]") == ["line 1: regions.eu.edges: is missing"]


def test_what_is_no_toml() -> None:
    assert told("\n\nversion = ")[0].startswith("line 3: Invalid value")
    assert told('[regions.eu]\nedges = ["ws://a/"')[0].startswith("line 2:")
    assert told("a = 1\na = 2")[0].startswith("line 2:")


def test_a_text_without_bound() -> None:
    assert told(" " * (BYTES_MAX + 1)) == [f"line 1: more than {BYTES_MAX} characters"]


LINES = GOOD.splitlines()


@given(
    st.lists(st.sampled_from([*LINES, "x = [1, {y = 2}]", "[regions]", "[[tenants]]", 'edges = "x"', "}"]), max_size=12)
)
def test_any_text_is_read_or_told_about(lines: list[str]) -> None:
    text = "\n".join(lines)
    try:
        assert read(text).config.regions
    except Mistakes as mistakes:
        assert mistakes.problems
        assert all(1 <= problem.line <= max(1, len(lines)) for problem in mistakes.problems)
