"""Encoder output of sources that come again: tiers, bounds, scopes, and the same ids."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from origin.engine.encoder_cache import KEY_BYTES, EncoderCache, Key, key_of
from tests.origin import tiny

SIZE = KEY_BYTES + 4 * 2 + 4 * 8  # two ids, [2, 4] float32


def key(number: int, scope: str = "") -> Key:
    return key_of("m@1", scope, (number, 0))


def states(number: int) -> torch.Tensor:
    return torch.full((2, 4), float(number))


def test_the_least_recently_used_goes_at_the_bound() -> None:
    cache = EncoderCache("cpu", 2 * SIZE)
    cache.put(key(1), states(1))
    cache.put(key(2), states(2))
    assert cache.device_bytes == 2 * SIZE
    assert cache.get(key(1)) is not None
    cache.put(key(3), states(3))
    assert [cache.get(key(n)) is not None for n in (1, 2, 3)] == [True, False, True]
    assert (len(cache), cache.host_bytes) == (2, 0)  # there is only one kind of memory
    cache.put(key(4), torch.zeros(100, 100))  # more than there is room for
    assert len(cache) == 0 and cache.device_bytes == 0


def test_what_falls_out_of_a_device_goes_to_the_host_and_comes_back() -> None:
    cache = EncoderCache("meta", 1 * SIZE, 2 * SIZE)
    cache._device = torch.device("cpu")  # there may be no GPU here: only the tiers matter
    for number in range(1, 5):
        cache.put(key(number), states(number))
    assert (cache.device_bytes, cache.host_bytes) == (SIZE, 2 * SIZE)
    back = cache.get(key(3))
    assert back is not None and torch.equal(back, states(3))
    assert cache.get(key(1)) is None  # fell out of both
    assert (cache.device_bytes, cache.host_bytes) == (SIZE, 2 * SIZE)


def test_models_and_scopes_are_apart() -> None:
    cache = EncoderCache("cpu", 100 * SIZE)
    cache.put(key(1, "a"), states(1))
    assert cache.get(key(1, "b")) is None and cache.get(key_of("m@2", "a", (1, 0))) is None
    assert cache.get(key(1, "a")) is not None


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=80), st.integers(0, 5), st.integers(0, 5))
def test_any_history_keeps_the_bounds(calls: list[tuple[bool, int]], near: int, far: int) -> None:
    cache = EncoderCache("meta", near * SIZE, far * SIZE)
    cache._device = torch.device("cpu")
    for put, number in calls:
        if put:
            cache.put(key(number), states(number))
        elif (found := cache.get(key(number))) is not None:
            assert torch.equal(found, states(number))
        assert cache.device_bytes <= near * SIZE and cache.host_bytes <= far * SIZE
        assert cache.device_bytes + cache.host_bytes == len(cache) * SIZE


@pytest.mark.parametrize("kind", ["attention", "ssru"])
def test_a_source_that_comes_again_is_not_encoded_again(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.model(kind)
    origin = tiny.Origin(model, slots=6)
    some = tiny.sources(3)
    encoded: list[int] = []
    real = model.encode
    monkeypatch.setattr(model, "encode", lambda ids, lens: encoded.extend(lens.tolist()) or real(ids, lens))
    numbers = [origin.submit(source) for source in [*some, some[0], some[1]]]  # duplicates within a step
    origin.finish()
    again = [origin.submit(source, tenant="") for source in some]
    origin.finish()
    assert sorted(encoded) == sorted(map(len, some))
    other = origin.submit(some[0], tenant="other")  # nobody saves time by what another tenant asked
    origin.finish()
    assert len(encoded) == 4
    for number, source in zip([*numbers, *again, other], [*some, some[0], some[1], *some, some[0]], strict=True):
        assert origin.ended[number].ids == tiny.plain(model, source)


def test_beams_start_from_kept_output_too() -> None:
    model, source = tiny.model(), tiny.sources(1)[0]
    origin = tiny.Origin(model, slots=4)
    first = origin.submit(source, width=4)
    origin.finish()
    second = origin.submit(source, width=4)
    origin.finish()
    assert origin.ended[first].ids == origin.ended[second].ids
