from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.keys import SHOWN_CHARS_MAX, Keys, key_hash, shown_key
from proxy.core.routing_config import Tenant


def owner(keys: Keys, shown: str) -> str | None:
    return keys.tenant(keys.id(shown))


def test_without_keys_everybody_is_the_default_tenant_on_loopback_only() -> None:
    assert owner(Keys((), {}, open_door=True), "") == owner(Keys((), {}, open_door=True), "anything") == "default"
    assert owner(Keys((), {}, open_door=False), "") is None


@given(st.lists(st.text(min_size=1), min_size=1, max_size=4), st.text())
def test_a_plain_key_is_the_default_tenants(keys: list[str], given_key: str) -> None:
    try:
        for key in keys:
            key.encode()
    except UnicodeEncodeError:  # half a surrogate pair: no config file can hold one
        return
    known = Keys(keys, {}, open_door=True)
    assert all(owner(known, key) == "default" for key in keys)
    assert (owner(known, given_key) == "default") == (given_key in keys)


def test_each_of_a_tenants_keys_is_its_own() -> None:
    tenants = {"acme": Tenant(keys=(key_hash("a1"), key_hash("a2"))), "globex": Tenant(keys=(key_hash("g"),))}
    keys = Keys(("plain",), tenants, open_door=True)
    assert [owner(keys, key) for key in ("a1", "a2", "g", "plain")] == ["acme", "acme", "globex", "default"]
    for stranger in ("", "a", "A1", key_hash("a1"), "a1 ", "\udcff"):
        assert owner(keys, stranger) is None


def test_a_key_taken_away_is_nobodys_though_its_id_was_given_out() -> None:
    before = Keys((), {"acme": Tenant(keys=(key_hash("old"), key_hash("new")))}, open_door=True)
    after = Keys((), {"acme": Tenant(keys=(key_hash("new"),))}, open_door=True)
    assert after.tenant(before.id("old")) is None
    assert after.tenant(before.id("new")) == "acme"
    assert after.tenant("") is None, "the id of an open door is no key"


def test_a_tenant_without_keys_shuts_a_door_that_others_have_keys_to() -> None:
    tenants = {"acme": Tenant(keys=(key_hash("a"),)), "empty": Tenant()}
    assert owner(Keys((), tenants, open_door=True), "") is None


def test_what_is_too_long_is_nobodys() -> None:
    longest = "x" * SHOWN_CHARS_MAX
    keys = Keys((longest,), {}, open_door=True)
    assert owner(keys, longest) == "default"
    assert owner(keys, longest + "x") is None


def test_no_key_is_kept() -> None:
    assert "s3cret" not in str(vars(Keys(("s3cret",), {}, open_door=True)))


def test_a_header_shows_its_key() -> None:
    assert shown_key("Bearer k1") == shown_key("bearer  k1 ") == "k1"
    for none in ("", "k1", "Basic k1", "Bearer"):
        assert shown_key(none) == ""
