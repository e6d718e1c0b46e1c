"""Where a sentence may end: the decision at one terminator, from a few characters around it.

Decides: whether the terminator that a caller found ends a sentence. Must not know: lines, blocks, limits, models.
Invariants: looks at no more than `LOOK_BACK` characters before and `LOOK_AHEAD` after, so a text costs linear time;
a terminator inside a word, number, URL or address (no whitespace after it) is no end, full-width ones excepted.
When in doubt it does not cut: two sentences in one segment cost little, half a sentence is a wrong translation.
"""

from __future__ import annotations

import re

LOOK_BACK = 24
LOOK_AHEAD = 40
FULL_WIDTH = "。！？｡．"
SENTENCE_MARKS = ".!?…؟۔।॥" + FULL_WIDTH
# One run of terminators with the quotes and brackets that close after it; no look-around, so a run is read once.
TERMINATOR = re.compile(r"[.!?…؟۔।॥။。！？｡．]+[\"'”’»›)\]）」』】]*")
_WORD_BEFORE = re.compile(r"[^\s(\[{\"'“‘„«»]+\Z")
_ACRONYM = re.compile(r"(?:\w\.)+\w", re.UNICODE)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Before a name or a number these never end a sentence; written without their last dot, lower case.
_NEVER_LAST = {
    "": _words(
        "dr prof st vs bzw ca cf vol no nr fig abb ed eds pp approx tel ext "
        "jan feb apr jun jul aug sep sept oct okt nov dec dez"
    ),
    "en": _words("mr mrs ms messrs rev hon gen col sgt capt lt sen rep gov pres mt ft e.g i.e eg ie viz"),
    "de": _words(
        "hr fr frl dipl ing str z.b z d.h d u.a u s.o s.u o.ä vgl evtl ggf inkl zzgl max min mind sog bspw s v.a i.d.r"
    ),
    "pt": _words("sr sra srta srs dra profa exmo exma d av pág págs art arts ex séc p.ex tel núm"),
}
# A dotted acronym ("U.S.") may end a sentence, but only before one of these does it look like it.
_OPENERS = _words("the a an it he she they we i you this that these those in on at but and if when")


def ends_sentence(text: str, start: int, end: int, stop: int, language: str) -> bool:
    """Whether the terminator run text[start:end] ends a sentence of a block that ends at `stop`.

    A run at the very end of the block ends it anyway.
    """
    if end >= stop:
        return True
    marks = text[start:end]
    if marks[0] in FULL_WIDTH:
        return True
    if not text[end].isspace():
        return False
    following = text[end : min(stop, end + LOOK_AHEAD)].lstrip()
    first = following.lstrip("\"'“‘„«»([{¿¡")[:1]
    dots = marks.rstrip("\"'”’»›)]）」』】")
    if dots != ".":
        # `"Really?" he asked` and `well... perhaps` go on; `what? no` is two sentences of a hasty writer.
        return not (first.islower() and (marks != dots or dots[-1] in ".…"))
    if first.islower():
        return False
    return _dot_ends(text[max(0, start - LOOK_BACK) : start], following, language)


def _dot_ends(before: str, following: str, language: str) -> bool:
    """A single dot before whitespace and something that is not lower case."""
    match = _WORD_BEFORE.search(before)
    word = match.group() if match else ""
    if not word:
        return True
    if word.isdigit():
        # German ordinals: "am 3. Mai", "der 2. Weltkrieg". A year ends a sentence.
        return not (language == "de" and len(word) <= 2 and following[:1].isalpha())
    if len(word) == 1 and word.isalpha():
        return False  # an initial, or the z. of "z. B."
    lower = word.lower()
    if language == "de" and lower.endswith("str"):
        return False  # Hauptstr. 5
    if lower in _NEVER_LAST[""] or lower in _NEVER_LAST.get(language, ()):
        return False
    if _ACRONYM.fullmatch(word):
        return re.split(r"\W", following, maxsplit=1)[0].lower() in _OPENERS
    return True
