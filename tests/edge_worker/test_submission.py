from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from edge_worker.core.join import Piece
from edge_worker.core.segmenter import Segment
from edge_worker.models import OriginModel
from edge_worker.submission import answered, growing, submission
from nearsay.text.vocab import Vocab
from nearsay.wire.errors import InternalError
from nearsay.wire.messages import Decoding, Finished, ModelInfo, Translate, WordPair, pack_ids, unpack_ids
from tests.kit.tiny_vocab import make_tiny_vocab

SEGMENT = Segment(0, 11, "the cat sat", "")


@pytest.fixture
def model(tmp_path: Path) -> OriginModel:
    vocab = Vocab.load(make_tiny_vocab(tmp_path / "v.spm"))
    return OriginModel(ModelInfo("m", "2", "en", "de", "origin", "s", "t", prefix_ids=b"\x07\0\0\0"), vocab, vocab)


def test_a_submission_names_model_vocabularies_and_prefix(model: OriginModel) -> None:
    request = Translate(
        "r9", ("x",), "en", "de", priority="batch", tenant="t", session="s", attempt=2, traceparent="tp"
    )
    submit = submission(request, model, [5, 6], [8], target_tokens_max=99)
    assert list(unpack_ids(submit.src_ids)) == [5, 6, model.source.eos_id] and list(unpack_ids(submit.draft_ids)) == [8]
    assert (submit.model, submit.src_vocab_hash, submit.trg_vocab_hash, submit.prefix_ids) == (
        "m@2",
        "s",
        "t",
        b"\x07\0\0\0",
    )
    assert (submit.request_id, submit.priority, submit.tenant, submit.session) == ("r9", "batch", "t", "s")
    assert (submit.attempt, submit.traceparent, submit.target_tokens_max) == (2, "tp", 99)


def test_how_to_decode_is_passed_on(model: OriginModel) -> None:
    asked = Translate("r", ("x",), "en", "de", decoding=Decoding(5, 0.6, 3, True))
    submit = submission(asked, model, [5], [], target_tokens_max=9)
    assert (submit.beam, submit.length_penalty, submit.n_best, submit.want_alignment) == (5, 0.6, 4, True)
    plain = submission(Translate("r", ("x",), "en", "de"), model, [5], [], target_tokens_max=9, bias=0.3)
    assert (plain.beam, plain.length_penalty, plain.n_best, plain.want_alignment, plain.bias) == (0, 1.0, 1, False, 0.3)
    most = submission(
        Translate("r", ("x",), "en", "de", decoding=Decoding(alternatives=8)), model, [5], [], target_tokens_max=9
    )
    assert most.n_best == 8


def test_an_answer_with_its_alternatives_and_word_pairs(model: OriginModel) -> None:
    vocab = model.target
    ids, other = vocab.encode("the cat"), vocab.encode("the mat")
    at = [0] * (len(vocab.encode("the"))) + [len(ids) - 1] * (len(ids) - len(vocab.encode("the")))
    finished = Finished(
        pack_ids(ids),
        "stop",
        "m@2",
        {},
        0.0,
        alignment=tuple(at),
        n_best=tuple(map(pack_ids, (ids, other, other))),
        bias=0.2,
    )
    piece = answered(finished, model, Segment(0, 7, "the cat", ""), ids)
    assert (piece.text, piece.alternatives, piece.bias) == ("the cat", ("the mat",), 0.2)
    assert piece.alignment == (WordPair(0, 3, 0, 3), WordPair(4, 7, 4, 7))


def test_text_only_grows(model: OriginModel) -> None:
    shown: list[Piece] = []
    grow = growing(model, shown.append)
    ids = model.target.encode("the cat sat on the mat")
    for end in (1, 1, 3, 2, len(ids)):  # the same, more, fewer (another attempt began), all
        grow(ids[:end])
    texts = [piece.text for piece in shown]
    assert len(texts) == 3 and texts[-1] == "the cat sat on the mat"
    assert all(after.startswith(before) for before, after in itertools.pairwise(texts))
    assert shown[0].kind == "partial" and shown[0].model == "m@2"
    grow(model.target.encode("another text that is longer than the first one was"))
    assert len(shown) == 3, "what was shown is not taken back by a partial state"


@pytest.mark.parametrize(("ids", "reason"), [([5], "failed"), ([5], "cancelled"), ([99_999], "stop")])
def test_only_a_proper_end_is_text(model: OriginModel, ids: list[int], reason: str) -> None:
    with pytest.raises(InternalError):
        answered(Finished(pack_ids(ids), reason, "m@2", {}, 0.0), model, SEGMENT, [])  # type: ignore[arg-type]
    good = Finished(pack_ids([5]), "stop", "m@2", {}, 0.0, n_best=(pack_ids([99_999]),))
    with pytest.raises(InternalError):
        answered(good, model, SEGMENT, [])
