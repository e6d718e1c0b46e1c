"""A SentencePiece vocabulary trained in the test itself: small, but with the special ids of the real ones."""

from __future__ import annotations

import io
from pathlib import Path

import sentencepiece

SENTENCES = (
    "the cat sat on the mat and the dog looked at the cat",
    "good morning, how are you today? i am very well, thank you!",
    "the weather is nice and the children are playing in the garden",
    "a bridge over the river was built in the year 1987 by two brothers",
    "please send me the letter that you wrote yesterday evening",
    "she sells sea shells by the sea shore; he never buys any of them",
    "das wetter ist schön und die kinder spielen im garten",
    "quem não arrisca não petisca, dizia a minha avó",
)


def make_tiny_vocab(path: Path, *, size: int = 120, sentences: tuple[str, ...] = SENTENCES) -> Path:
    """Train `path` (a `.spm` file) on `sentences`: eos `</s>` 0, `<unk>` 1, no bos, no pad. Takes some 20 ms."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        vocab_size=size,
        model_type="unigram",
        eos_id=0,
        unk_id=1,
        bos_id=-1,
        pad_id=-1,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.getvalue())
    return path


def pieces_of(path: Path) -> list[str]:
    """All pieces of a vocabulary, by id."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
