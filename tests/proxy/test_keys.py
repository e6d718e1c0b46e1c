from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.keys import Keys


def test_without_keys_everybody_is_admitted() -> None:
    assert Keys(()).admit("")
    assert Keys(()).admit("anything")


@given(st.lists(st.text(min_size=1), min_size=1, max_size=4), st.text())
def test_with_keys_only_they_are(keys: list[str], given_key: str) -> None:
    try:
        known = Keys(keys)
    except UnicodeEncodeError:  # half a surrogate pair: no config file can hold one
        return
    assert all(known.admit(key) for key in keys)
    assert known.admit(given_key) == (given_key in keys)


def test_a_header_that_is_no_text_is_no_key() -> None:
    assert not Keys(("k",)).admit("\udcff")
