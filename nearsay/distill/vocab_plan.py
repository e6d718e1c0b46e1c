"""How a borrowed source vocabulary becomes ours: what is dropped, which rows the reserved symbols get, what is added.

Decides, from counts and a copy test, never from hand-picked ids. Must not know: files, networks.
- Dropped: pieces that no English text used, and that another language used or that have letters beyond ASCII.
- Symbols: unused word pieces that the borrowed network copies untouched into its translations. Their rows already mean
  "carry this over" to the frozen encoder. Of those, the 32 that lie farthest apart.
- Aliases: characters that the vocabulary lacks, with the row of their plain look-alike, or a free row.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import torch
from torch import Tensor

from nearsay.distill.symbols import SYMBOLS, symbol
from nearsay.distill.vocab_edit import Piece, edit_pieces

SPACE = "▁"
ALIAS_SCORE = -11.0  # about that of a rare piece
LOOK_ALIKES = {
    **dict.fromkeys("’‘", "'"),
    **dict.fromkeys("“”„«»", '"'),
    **dict.fromkeys("–—―−•‐‑·", "-"),
    **dict(zip("üöäßÜÖÄèščëñåøžřěýïČŠćőîłùûðœæÅØ×", "uoasUOAescenaozreyiCScoiluudoaAOx", strict=True)),
}
FREE_ROWS = "#<`\\{}~@^£€→▸§©®"
COPY_TEMPLATES = (
    "I saw {} in the garden yesterday.",
    "Open the file {} and press Enter.",
    "{} is very good.",
    "Go to {} and {} now.",
    "The value of {} was changed from {} to {}.",
    "Don't forget {}!",
    "See {} for details.",
    "He asked {} about it.",
)


class VocabPlan(msgspec.Struct, frozen=True):
    """All ids are the borrowed vocabulary's. symbols: one id a symbol, in their order. aliases: id to the character
    that takes its place and the embedding row that it takes."""

    symbols: list[int]
    aliases: dict[int, tuple[str, int]]
    dropped: list[int]

    def apply(self, model: bytes) -> tuple[bytes, list[int]]:
        """The SentencePiece model as planned, and for each of its ids the row of the borrowed embedding."""
        replaced = {i: Piece(symbol(k), user_defined=True) for k, i in enumerate(self.symbols)}
        replaced |= {i: Piece(char, ALIAS_SCORE) for i, (char, _) in self.aliases.items()}
        edited, kept = edit_pieces(model, replaced, frozenset(self.dropped))
        return edited, [self.aliases[i][1] if i in self.aliases else i for i in kept]


def copied_words(words: Mapping[int, str], translate: Callable[[Sequence[str]], Sequence[str]]) -> list[int]:
    """The ids whose word came through every template, each time it stood there."""
    sentences = [template.replace("{}", word) for word in words.values() for template in COPY_TEMPLATES]
    answers = iter(translate(sentences))
    good: list[int] = []
    for i, word in words.items():
        whole = re.compile(rf"\b{re.escape(word)}\b")
        counts = [len(whole.findall(next(answers))) for _ in COPY_TEMPLATES]
        if counts == [template.count("{}") for template in COPY_TEMPLATES]:
            good.append(i)
    return good


def plan_vocab(
    pieces: Sequence[str],
    english: Counter[int],
    other: Counter[int],
    embedding: Tensor,
    copied: Sequence[int],
    missing: Iterable[str],
) -> VocabPlan:
    """english, other: uses of each id in each language. embedding [V, d]. missing: characters that have no piece.

    Raises ValueError when fewer than 32 ids pass the copy test.
    """
    candidates = [i for i in copied if not english[i]]
    if len(candidates) < SYMBOLS:
        raise ValueError(f"only {len(candidates)} unused pieces are copied; {SYMBOLS} symbols need one each")
    symbols = sorted(candidates[k] for k in farthest(embedding[candidates], SYMBOLS))
    unused = [i for i, piece in enumerate(pieces) if i > 1 and not english[i] and len(piece.strip(SPACE)) > 1]
    foreign = [i for i in unused if i not in symbols and (other[i] or not pieces[i].strip(SPACE).isascii())]
    index = {piece: i for i, piece in enumerate(pieces)}
    wanted = [char for char in (*LOOK_ALIKES, *FREE_ROWS) if char in set(missing)]
    aliases: dict[int, tuple[str, int]] = {}
    for i, char in zip([i for i in foreign if other[i]], wanted, strict=False):
        aliases[i] = (char, index.get(LOOK_ALIKES.get(char, ""), i))
    return VocabPlan(symbols, aliases, [i for i in foreign if i not in aliases])


def farthest(vectors: Tensor, count: int) -> list[int]:
    """Indices of `count` of vectors [N, d], each as far in angle from those before as can be; starts with the first."""
    unit = torch.nn.functional.normalize(vectors.float(), dim=1)
    chosen = [0]
    while len(chosen) < count:
        nearness = (unit @ unit[chosen].T).amax(1)  # [N]
        nearness[chosen] = 2.0
        chosen.append(int(nearness.argmin()))
    return chosen
