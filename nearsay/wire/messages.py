"""Every message between two Nearsay processes, one small struct each.

Text rooms speak `Translate`, id rooms speak `Submit`. Both are opened on a stream of their own; the answer is zero or
more updates, then one final message (`Translated`, `Finished`) or a `Reject` from errors.py.
Not here: how they become bytes (codec.py), who may send what when (session.py).
Texts are str, ids are packed little-endian u32 (`pack_ids`), durations are milliseconds.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from nearsay.wire.packed_ids import pack_ids as pack_ids
from nearsay.wire.packed_ids import unpack_ids as unpack_ids

PROTOCOL_VERSION = 1

Tier = Literal["auto", "edge", "origin", "refine"]
ServedTier = Literal["edge", "origin"]
Priority = Literal["interactive", "batch"]
FinishReason = Literal["stop", "length", "cancelled", "expired", "failed"]
UpdateKind = Literal["draft", "partial", "segment", "restart"]
State = Literal["starting", "ready", "draining", "stopped"]
Role = Literal["client", "proxy", "edge", "origin"]

STAGES = (
    "parse",  # proxy: body to a typed request
    "queue",  # proxy: admission and waiting for an edge
    "link",  # proxy to edge and back, less what the edge accounts for
    "segment",
    "tokenise",
    "edge_queue",
    "edge_run",
    "origin_link",  # edge to origin and back, less what the origin accounts for; and there from engine to link
    "origin_queue",
    "encode",
    "decode",
    "detokenise",
    "join",
    "render",  # proxy: answer to bytes
    "unaccounted",  # end to end less the sum of all others
)
LENGTH_BUCKETS = (16, 64, 256, 1024)  # source characters; the last bucket is open
LENGTH_BUCKET_NAMES = ("1-16", "17-64", "65-256", "257-1024", "1025+")


def length_bucket(characters: int) -> str:
    """Name of the length bucket of a text."""
    for upper, name in zip(LENGTH_BUCKETS, LENGTH_BUCKET_NAMES, strict=False):
        if characters <= upper:
            return name
    return LENGTH_BUCKET_NAMES[-1]


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Base of all messages: encoded as an array whose first item is the struct's name."""


# ---- link level (stream 0) -------------------------------------------------------------------------------------------


class ModelInfo(msgspec.Struct, frozen=True, array_like=True):
    """One model that a process serves. The hashes name the vocabularies whose ids it reads and writes."""

    id: str  # "en-de-teacher"
    version: str  # "1"
    source: str
    target: str
    tier: ServedTier
    src_vocab_hash: str
    trg_vocab_hash: str
    prefix_ids: bytes = b""  # decoder prefix every Submit must carry (language tokens of multilingual models)
    licence: str = ""
    engine: str = ""  # "ctranslate2 int8 cpu", "fxtranslate int8 cpu", "torch float32 cpu"
    created: int = 0  # when it was published, in Unix seconds; 0 = not known

    @property
    def name(self) -> str:
        """`model@version`, as it stands in requests and answers."""
        return f"{self.id}@{self.version}"


class Hello(Message, frozen=True):
    """First message each way."""

    role: Role
    protocol: int = PROTOCOL_VERSION
    instance: str = ""  # random per process start; lets a peer notice a restart
    state: State = "ready"
    models: tuple[ModelInfo, ...] = ()
    origin_pairs: tuple[str, ...] = ()  # edge only: pairs "en-pt" that it can get from an origin now or later
    message_bytes_max: int = 8 << 20
    secret: str = ""


class LoadReport(Message, frozen=True):
    """How busy a peer is; sent on a timer and on change of state, overtakes data."""

    state: State
    queued: int = 0
    running: int = 0
    slots_free: int = 0
    step_ms: float = 0.0
    wants_drafts: tuple[str, ...] = ()  # model@version for which verification pays at the present load
    models: tuple[ModelInfo, ...] = ()
    origin_ready: tuple[str, ...] = ()  # edge only: pairs whose origin link is up right now


# ---- text rooms: client -> proxy -> edge -----------------------------------------------------------------------------


class DoneSegment(msgspec.Struct, frozen=True, array_like=True):
    """A segment that an earlier attempt has answered, known by the half-open span of its source text in code points."""

    item: int
    start: int
    end: int
    text: str
    tier: ServedTier
    model: str
    degraded: str = ""


class Stability(msgspec.Struct, frozen=True, array_like=True):
    """How calm the translation of a text is that is still being written. Only a text's last segment, and only while
    it doesn't end as a sentence does, is meant: what is finished is translated plainly and shown whole.

    bias: weight in [0, 1) of the session's previous answer; None = the edge's default for sessions.
    mask: words at the end that are held back.
    """

    bias: float | None = None
    mask: int = 0


class Decoding(msgspec.Struct, frozen=True, array_like=True):
    """What only an origin can do. beam: width, 0 = the model's. length_penalty: None = 1. alternatives: further
    translations wanted. alignment: which words were made from which."""

    beam: int = 0
    length_penalty: float | None = None
    alternatives: int = 0
    alignment: bool = False


class Translate(Message, frozen=True):
    """Translate texts. One stream; updates only when `stream`, then one `Translated`.

    A stream that goes on where another edge was lost names what is `done`, and `models`, of all that was shown. An edge
    that can't go on from there (it has other models, or cuts the text otherwise) says `restart` and does everything.
    """

    request_id: str
    texts: tuple[str, ...]
    source: str
    target: str
    tier: Tier = "auto"
    priority: Priority = "interactive"
    budget_ms: float = 10_000.0  # remaining time, stamped when the frame is written
    stream: bool = False
    segments: bool = False
    session: str = ""
    tenant: str = ""
    attempt: int = 1
    attempts_left: int = 0
    traceparent: str = ""
    seq: int = 0  # counts the requests of a session
    grant: str = ""  # from a client that asks an edge directly: the newest it has, "" = the one in its hello
    done: tuple[DoneSegment, ...] = ()
    models: tuple[str, ...] = ()  # model@version
    stability: Stability | None = None
    decoding: Decoding | None = None


class SegmentText(msgspec.Struct, frozen=True, array_like=True):
    """One translated segment and the half-open span of its source text, in code points."""

    text: str
    start: int
    end: int
    tier: ServedTier
    model: str
    degraded: bool = False


class Update(Message, frozen=True):
    """Streamed state of one segment. `text` replaces what an earlier revision of the segment said.

    draft = an edge answer that the origin will confirm or replace; partial = growing text; segment = final; restart =
    forget all that was shown, it comes anew (the other fields mean nothing then).
    `gap` is the source text between the previous segment (or the start) and this one.
    """

    item: int
    segment: int
    revision: int
    kind: UpdateKind
    text: str
    gap: str = ""
    start: int = 0
    end: int = 0
    tier: ServedTier = "edge"
    model: str = ""
    degraded: str = ""  # of a final segment: why a worse tier answered


class WordPair(msgspec.Struct, frozen=True, array_like=True):
    """A source word and a word made from it: half-open spans of both texts, in code points."""

    start: int
    end: int
    target_start: int
    target_end: int


class TranslatedText(msgspec.Struct, frozen=True, array_like=True):
    """Answer to one text."""

    text: str
    source: str
    tier: ServedTier  # "origin" when any segment came from there
    model: str  # model@version of the last segment from that tier
    segments: tuple[SegmentText, ...] = ()
    degraded: bool = False  # a worse tier than asked for answered
    degraded_reason: str = ""
    bias: float = 0.0  # the last segment was decoded with this weight of its previous answer; 0 = plainly
    masked: int = 0  # words that are held back at the end
    alternatives: tuple[str, ...] = ()  # the next best, without the text itself
    alignment: tuple[WordPair, ...] = ()


class Translated(Message, frozen=True):
    """Final answer to `Translate`. `stages_ms` is the edge's part, on the critical-path segment."""

    translations: tuple[TranslatedText, ...]
    stages_ms: dict[str, float]
    accounted_ms: float  # edge wall time from message read to answer written
    region: str = ""  # which one answered; the proxy says so
    routing: str = ""  # and by which routing config: version@hash
    priority: Priority | Literal[""] = ""  # the class it was served in, when that isn't the one asked for


# ---- id rooms: edge -> origin ----------------------------------------------------------------------------------------


class Submit(Message, frozen=True):
    """Decode one segment. Ids only: the origin never sees text."""

    request_id: str
    model: str  # model@version
    src_vocab_hash: str
    trg_vocab_hash: str
    src_ids: bytes  # packed, with the closing eos
    prefix_ids: bytes = b""  # packed decoder prefix
    draft_ids: bytes = b""  # packed, without eos; empty = no draft
    target_tokens_max: int = 256
    beam: int = 0  # 0 = the model's default
    priority: Priority = "interactive"
    budget_ms: float = 10_000.0
    stream: bool = False
    tenant: str = ""
    session: str = ""
    seq: int = 0
    n_best: int = 1
    want_log_prob: bool = False
    want_alignment: bool = False
    attempt: int = 1
    traceparent: str = ""
    draft_vocab_hash: str = ""  # vocabulary of draft_ids when it isn't trg_vocab_hash: the draft is then ignored
    bias: float = 0.0  # weight in [0, 1) of the session's answer to the most similar source; 0 = plain
    length_penalty: float = 1.0  # of a beam


class Tokens(Message, frozen=True):
    """New ids of one sequence since the last `Tokens`; never retracted. The codec packs a step's worth in one frame."""

    ids: bytes


class Finished(Message, frozen=True):
    """End of one sequence. `ids` are all target ids without prefix and eos."""

    ids: bytes
    finish_reason: FinishReason
    model: str
    stages_ms: dict[str, float]  # origin_queue, encode, decode, and origin_link from the engine to the link
    accounted_ms: float  # origin wall time from message read to answer written
    steps: int = 0  # decoder passes this sequence took part in
    draft_accepted: int = 0
    draft_tokens: int = 0
    log_prob: float | None = None
    alignment: tuple[int, ...] = ()
    n_best: tuple[bytes, ...] = ()
    bias: float = 0.0  # what it was decoded with; 0 also when there was no earlier answer to lean on
