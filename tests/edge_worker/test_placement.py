from __future__ import annotations

from itertools import product
from typing import Any, get_args

import pytest

from edge_worker.core.placement import Facts, OriginState, Placement, Policy, place
from nearsay.wire.errors import InvalidRequest, NearsayError, Unavailable
from nearsay.wire.messages import Tier

POLICY = Policy(long_tokens=64)


def facts(**changes: Any) -> Facts:
    """A short segment under `auto`, an idle edge, an origin that is ready."""
    base: dict[str, Any] = {"tier": "auto", "tokens": 10, "local": True, "local_ms": 10.0, "origin": "ready"}
    return Facts(**(base | {"budget_ms": 10_000.0} | changes))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Placement("local", "short")),
        ({"tokens": 64}, Placement("local", "short")),
        ({"tokens": 65}, Placement("origin", "long")),
        ({"tokens": 65, "origin": "down"}, Placement("local", "long", "origin_unavailable")),
        ({"tokens": 65, "origin": "none"}, Placement("local", "long")),
        ({"local_ms": 10_001.0}, Placement("origin", "queue")),
        ({"local_ms": 10_001.0, "origin": "down"}, Placement("local", "queue", "origin_unavailable")),
        ({"local_ms": 10_001.0, "origin": "none"}, Placement("local", "queue")),
        ({"local": False}, Placement("origin", "no_edge_model")),
        ({"tier": "edge", "tokens": 999, "local_ms": 1e9}, Placement("local", "asked")),
        ({"tier": "origin"}, Placement("origin", "asked")),
        ({"tier": "origin", "local": False}, Placement("origin", "asked")),
        ({"far": "session"}, Placement("origin", "session")),
        ({"far": "session", "origin": "down"}, Placement("local", "session", "origin_unavailable")),
        ({"far": "session", "origin": "none"}, Placement("local", "session")),
        ({"far": "session", "tier": "edge"}, Placement("local", "asked")),
        ({"tier": "refine"}, Placement("both", "asked")),
        ({"tier": "refine", "origin": "down"}, Placement("local", "refine", "origin_unavailable")),
        ({"tier": "refine", "origin": "none"}, Placement("local", "refine", "tier_unavailable")),
        ({"tier": "refine", "local": False}, Placement("origin", "no_edge_model")),
    ],
)
def test_the_table(changes: dict[str, Any], expected: Placement) -> None:
    assert place(facts(**changes), POLICY) == expected


@pytest.mark.parametrize(
    ("changes", "kind", "code"),
    [
        ({"tier": "edge", "local": False}, InvalidRequest, "tier_unavailable"),
        ({"tier": "origin", "origin": "none"}, InvalidRequest, "tier_unavailable"),
        ({"tier": "origin", "origin": "down"}, Unavailable, "origin_unavailable"),
        ({"tier": "auto", "local": False, "origin": "down"}, Unavailable, "origin_unavailable"),
        ({"tier": "refine", "local": False, "origin": "none"}, InvalidRequest, "tier_unavailable"),
    ],
)
def test_what_cant_be_placed(changes: dict[str, Any], kind: type[NearsayError], code: str) -> None:
    with pytest.raises(kind) as caught:
        place(facts(**changes), POLICY)
    assert caught.value.code == code


def test_every_case_is_placed_where_it_can_run() -> None:
    for tier, tokens, local, local_ms, origin in product(
        get_args(Tier), (1, 1000), (True, False), (0.0, 1e9), get_args(OriginState)
    ):
        try:
            placed = place(facts(tier=tier, tokens=tokens, local=local, local_ms=local_ms, origin=origin), POLICY)
        except NearsayError as error:
            assert tier in ("edge", "origin") or not local, error
            continue
        assert placed.place == "local" or origin == "ready"
        assert placed.place == "origin" or local
        assert not placed.degraded or (placed.place == "local" and origin != "ready")
