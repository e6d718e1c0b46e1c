"""Grants: what is signed comes back, what was touched doesn't, and how long one holds."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsay.wire.errors import InvalidRequest
from nearsay.wire.grant import GRANT_S, SKEW_S, TOKEN_CHARS_MAX, TOKEN_START, Grant, GrantKey, check_time, is_grant

KEY = GrantKey("a secret")
NOW = 1_800_000_000.0
GRANT = Grant("acme", ("eu", "us"), NOW + GRANT_S, "batch", 5.0, 500.0, 10.0, 3)
rates = st.floats(min_value=1e-3, max_value=1e9)
grants = st.builds(
    Grant,
    tenant=st.text(max_size=40),
    regions=st.lists(st.text(max_size=20), max_size=4).map(tuple),
    expires=st.floats(0, 1e12),
    priority_max=st.sampled_from(["interactive", "batch"]),
    requests_per_s=rates,
    chars_per_s=rates,
    burst_s=rates,
    concurrency_max=st.integers(1, 10_000),
)


def code_of(token: str, key: GrantKey = KEY) -> str:
    with pytest.raises(InvalidRequest) as refused:
        key.verify(token)
    return refused.value.code


@given(grants)
def test_what_is_signed_comes_back(grant: Grant) -> None:
    token = KEY.sign(grant)
    assert token.isascii() and token.isprintable() and " " not in token and is_grant(token)
    assert KEY.verify(token) == grant


@given(grants, st.data())
def test_no_character_can_be_changed(grant: Grant, data: st.DataObject) -> None:
    token = KEY.sign(grant)
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters(max_codepoint=0x2FF).filter(lambda c: c != token[at]))
    forged = token[:at] + other + token[at + 1 :]
    try:
        found = KEY.verify(forged)
    except InvalidRequest as error:
        assert error.code == "grant_invalid"
    else:
        assert found == grant, "only padding bits of the last character may differ"
        assert at == len(token) - 1


@given(st.one_of(st.text(), st.text().map(TOKEN_START.__add__), st.binary().map(lambda b: TOKEN_START + b.hex())))
def test_any_text_is_refused_by_its_code(token: str) -> None:
    assert code_of(token) == "grant_invalid"


def test_another_key_and_too_much_of_it() -> None:
    assert code_of(KEY.sign(GRANT), GrantKey("another secret")) == "grant_invalid"
    long = KEY.sign(msgspec.structs.replace(GRANT, tenant="x" * TOKEN_CHARS_MAX))
    assert code_of(long) == "grant_invalid"
    with pytest.raises(AssertionError):
        GrantKey("")


def test_the_secret_itself_signs_nothing() -> None:
    """Whoever could make an edge sign with the raw secret must not get a grant by it."""
    import base64
    import hmac

    body = msgspec.msgpack.encode(GRANT)
    mac = hmac.digest(b"a secret", body, "sha256")
    forged = TOKEN_START + base64.urlsafe_b64encode(mac + body).decode().rstrip("=")
    assert code_of(forged) == "grant_invalid"


@pytest.mark.parametrize("field", ["requests_per_s", "chars_per_s", "burst_s", "concurrency_max"])
def test_a_grant_of_nothing_is_none(field: str) -> None:
    assert code_of(KEY.sign(msgspec.structs.replace(GRANT, **{field: 0}))) == "grant_invalid"


def test_how_long_it_holds() -> None:
    end = GRANT.expires
    for now in (NOW, NOW - SKEW_S, end, end + SKEW_S):
        check_time(GRANT, now)
    for now, code in ((end + SKEW_S + 0.01, "grant_expired"), (NOW - SKEW_S - 0.01, "grant_invalid")):
        with pytest.raises(InvalidRequest) as refused:
            check_time(GRANT, now)
        assert refused.value.code == code
    for endless in (float("inf"), float("nan")):
        with pytest.raises(InvalidRequest) as refused:
            check_time(msgspec.structs.replace(GRANT, expires=endless), NOW)
        assert refused.value.code == "grant_invalid"
