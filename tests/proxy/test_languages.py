from __future__ import annotations

import pytest

from proxy.core.languages import NAMES, VARIANTS, display_name


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("de", "German"),
        ("ns", "Northern Sotho"),
        ("nb", "Norwegian Bokmål"),
        ("pt-br", "Portuguese (Brazil)"),
        ("pt_BR", "Portuguese (Brazil)"),
        ("zh-hant", "Chinese (Traditional)"),
        ("sr-cyrl", "Serbian (Cyrillic)"),
        ("es-419", "Spanish (419)"),
        ("xx", "xx"),
        ("xx-yy", "xx-yy"),
    ],
)
def test_a_code_has_a_name_for_people(code: str, name: str) -> None:
    assert display_name(code) == name


def test_the_tables_are_well_formed() -> None:
    assert len(NAMES) > 180 and {"en", "pt", "de", "zh", "ja", "ar"} <= NAMES.keys()
    assert all(2 <= len(code) <= 4 and code.islower() for code in (NAMES | VARIANTS))
    assert all(name == name.strip() and name[0].isupper() for name in (NAMES | VARIANTS).values())
