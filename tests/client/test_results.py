from __future__ import annotations

import pytest

from nearsay.client.results import (
    Draft,
    Partial,
    Result,
    Segment,
    SegmentDone,
    Translation,
    checked,
    event_of,
    result_of,
)
from nearsay.wire.errors import InternalError
from nearsay.wire.messages import SegmentText, Translated, TranslatedText, Update, UpdateKind

ONE = TranslatedText("Hallo", "en", "edge", "m@1", (SegmentText("Hallo", 0, 5, "edge", "m@1", True),), True, "why")


def test_result_of_a_link_message() -> None:
    result = result_of(Translated((ONE, ONE), {"parse": 1.0}, 2.0), "r")
    segment = Segment("Hallo", 0, 5, "edge", "m@1", True)
    translation = Translation("Hallo", "en", "edge", "m@1", (segment,), True, "why")
    assert result == Result((translation, translation), {"parse": 1.0}, "r")
    assert (result.text, result.texts) == ("Hallo", ["Hallo", "Hallo"])


@pytest.mark.parametrize(("kind", "expected"), [("draft", Draft), ("partial", Partial), ("segment", SegmentDone)])
def test_event_of_an_update(kind: UpdateKind, expected: type[Draft]) -> None:
    event = event_of(Update(1, 2, 3, kind, "t", " ", 4, 5, "origin", "m@1"))
    assert event == expected(1, 2, 3, "t", " ", 4, 5, "origin", "m@1")
    assert type(event) is expected


def test_every_text_is_answered() -> None:
    result = result_of(Translated((ONE,), {}, 0.0), "r")
    assert checked(result, 1) is result
    for texts in (0, 2):
        with pytest.raises(InternalError):
            checked(result, texts)
