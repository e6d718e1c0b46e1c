"""Reserved symbols: text that must survive translation becomes `⟦k⟧` on both sides of a pair.

Decides: what counts as protected (tags, addresses, placeholders, numbers, names) and which symbol stands for it.
Must not know: ids or models. Chance is an argument.
Invariant: an item is replaced on both sides equally often, or on neither, so both sides hold the same symbols; putting
the items back gives the pair as it was.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping

SYMBOLS = 32
ITEMS_MAX = 8
SYMBOL = re.compile(r"⟦(\d+)⟧")

# Capitalised words that look like a name at the start of a sentence and are words of both languages.
_NOT_NAMES = frozenset(
    ("In", "So", "Am", "An", "Was", "Die", "Also", "Will", "Man", "Bin", "Art", "War", "Hat", "Gift", "Not", "Rate")
)

_PROTECTED = re.compile(
    r"""
    </?[A-Za-z][^<>]*>                                  # tag
    | (?:https?|ftp|file)://[^\s<>"]*[^\s<>".,;:!?)']   # address
    | [\w.+-]+@[\w-]+(?:\.[\w-]+)+                      # e-mail
    | %\(?\w+\)?[sd]? | \{\w*\} | \$\w+                 # placeholder
    | (?<![\w-])--?[A-Za-z][\w-]+                       # command line option
    | [~.]?/?[\w+-]+(?:[/._:]+[\w+-]+)+                 # path, file, qualified name, 3.14, 12:30
    | \d[\d.,]*\d%? | \d%?                              # number
    | [A-Z][\w]*[A-Za-z0-9](?:[ -][A-Z]\w+)*            # name
    """,
    re.VERBOSE,
)


def symbol(index: int) -> str:
    return f"⟦{index}⟧"


def shared_items(source: str, target: str) -> list[str]:
    """Protected items that stand equally often, as whole words, on both sides; longest first."""
    found: dict[str, None] = {}
    for match in _PROTECTED.finditer(source):
        item = match.group()
        for part in (item, *(item.split(" ") if " " in item else ())):
            count = _occurrences(part, source)
            if count and part not in _NOT_NAMES and count == _occurrences(part, target):
                found[part] = None
                break
    return sorted(found, key=len, reverse=True)


def protect(source: str, target: str, rng: random.Random, keep: float = 0.0) -> tuple[str, str, dict[str, str]] | None:
    """The pair with shared items replaced by distinct random symbols, and what each symbol stands for.

    keep: the chance that an item stays as it is. None when nothing is replaced.
    """
    if SYMBOL.search(source) or SYMBOL.search(target):
        return None
    items = [item for item in shared_items(source, target)[:ITEMS_MAX] if rng.random() >= keep]
    table: dict[str, str] = {}
    for item, index in zip(items, rng.sample(range(SYMBOLS), len(items)), strict=True):
        if _occurrences(item, source) != _occurrences(item, target) or not _occurrences(item, source):
            continue  # it was inside a longer item
        source, target = (_whole(item).sub(symbol(index), side) for side in (source, target))
        table[symbol(index)] = item
    return (source, target, table) if table else None


def restore(text: str, table: Mapping[str, str]) -> str:
    """Puts the items back; a symbol that the table doesn't know stays."""
    return SYMBOL.sub(lambda match: table.get(match.group(), match.group()), text)


def survived(source: str, translation: str) -> bool:
    """Whether the translation holds exactly the symbols of the source, each as often."""
    return Counter(SYMBOL.findall(source)) == Counter(SYMBOL.findall(translation))


def _whole(item: str) -> re.Pattern[str]:
    # A number must not match inside a symbol that is there already.
    before = r"(?<![\w⟦])" if item[0].isalnum() else ""
    after = r"(?![\w⟧])" if item[-1].isalnum() else ""
    return re.compile(before + re.escape(item) + after)


def _occurrences(item: str, text: str) -> int:
    return len(_whole(item).findall(text)) if item in text else 0
