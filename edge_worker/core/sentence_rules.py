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


# Titles and links between words never end a sentence; written without their last dot, lower case.
_NEVER_LAST = {
    "": _words("dr prof st vs bzw ca cf eds approx jan feb apr jun jul aug sep sept oct okt nov dec dez ph.d"),
    "en": _words("mr mrs ms messrs rev hon gen col sgt capt lt sen rep gov pres mt ft e.g i.e eg ie viz"),
    "de": _words("hr fr frl dipl ing z.b d.h u.a s.o s.u o.ä vgl evtl ggf inkl zzgl max min mind sog bspw v.a i.d.r"),
    "pt": _words("sr sra srta srs dra profa exmo exma av ex p.ex"),
}
# These don't before a number: "No. 5", but "He said no. Then he left."
_BEFORE_NUMBERS = _words("no nr fig abb vol ed p pp art arts sec sect ch kap bd s séc pág págs núm tel ext str")
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
        return language == "en" and word == "I"  # else an initial, or the z. of "z. B."
    lower = word.lower().rsplit("-", 1)[-1]  # Dipl.-Ing.
    if lower in _NEVER_LAST[""] or lower in _NEVER_LAST.get(language, ()):
        return False
    if following[:1].isdigit() and (lower in _BEFORE_NUMBERS or lower.endswith("str")):
        return False  # "Hauptstr. 5", too
    if _ACRONYM.fullmatch(word):
        return re.split(r"\W", following, maxsplit=1)[0].lower() in _OPENERS
    return True
