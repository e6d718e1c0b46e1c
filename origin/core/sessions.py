"""What a session's earlier segments came to, so that typing on, or editing, doesn't begin again from nothing.

Decides: which earlier answer stands for a segment that comes again, which ones are like a segment that has grown or
been edited, and what is forgotten when.
Must not know: texts, tensors, clocks, who runs.
Invariants: a tenant sees its own sessions only; sessions, answers and bytes stay within their limits, and what one
tenant keeps costs others nothing before all limits together are reached; losing any of it costs time, never
correctness: an answer stands only for the same source, model and way of decoding.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from heapq import nlargest
from operator import itemgetter

import msgspec

from origin.core.drafts import Earlier

SESSION_BYTES, ANSWER_BYTES = 300, 400  # about what each costs beside its ids
EARLIER_MAX = 3  # answers to similar sources: a third is worth 0.3 % of the passes, more are worth nothing


class SessionLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Bounds of what is kept.

    idle_s: a session that was not asked for so long is forgotten. overlap_min: share of a segment's source that an
    earlier one must have in common with it, counted from both ends, to draft it.
    """

    idle_s: float = 600.0
    tenant_sessions_max: int = 256
    session_answers_max: int = 64
    tenant_bytes_max: int = 8 << 20
    bytes_max: int = 64 << 20
    overlap_min: float = 0.5

    def __post_init__(self) -> None:
        if min(self.tenant_sessions_max, self.session_answers_max, self.tenant_bytes_max, self.bytes_max) < 1:
            raise ValueError("a limit of the sessions is not positive")
        if not self.idle_s > 0 or not 0.0 <= self.overlap_min <= 1.0:
            raise ValueError("'idle_s' must be positive and 'overlap_min' a share")


class Way(msgspec.Struct, frozen=True):
    """How a segment is decoded. Equal ways give equal ids: also with a bias, because an answer leans on nothing more
    than on itself when it comes again."""

    model: str
    trg_vocab_hash: str
    width: int
    target_tokens_max: int
    bias: float = 0.0
    length_penalty: float = 1.0


class Question(msgspec.Struct, frozen=True):
    """A segment of a session. seq: counts the session's requests; the answer to a later one is the newer."""

    tenant: str
    session: str
    seq: int
    way: Way
    source: tuple[int, ...]


class SessionUse(msgspec.Struct):
    """What sessions have been good for since the start.

    segments: answered in one, segments_reused of them without decoding. passes: decoder passes they took; plain_passes:
    what plain decoding of each would have taken. draft_tokens, draft_tokens_accepted: verified ids, and those that
    stood. leaning: decoded with a bias.
    """

    segments: int = 0
    segments_reused: int = 0
    passes: int = 0
    plain_passes: int = 0
    draft_tokens: int = 0
    draft_tokens_accepted: int = 0
    leaning: int = 0


class _Answer:
    """All ids packed: a tuple of ints takes ten times the room. draft: the caller's own, for `Earlier`."""

    __slots__ = ("draft", "ids", "seq", "source", "way")

    def __init__(self, question: Question, ids: Sequence[int], draft: Sequence[int]) -> None:
        self.way = question.way
        self.seq = question.seq
        self.source = _pack(question.source)
        self.ids = _pack(ids)
        self.draft = _pack(draft)

    @property
    def size(self) -> int:
        return len(self.source) + len(self.ids) + len(self.draft) + ANSWER_BYTES


class _Session:
    __slots__ = ("answers", "size", "used")

    def __init__(self, now: float) -> None:
        self.answers: OrderedDict[tuple[bytes, Way], _Answer] = OrderedDict()  # the last used last
        self.size = 0
        self.used = now


class Sessions:
    """The single writer of all sessions. Calls carry `now`, monotonic seconds."""

    def __init__(self, limits: SessionLimits) -> None:
        self._limits = limits
        self._sessions: OrderedDict[tuple[str, str], _Session] = OrderedDict()  # the last used last
        self._tenants: dict[str, OrderedDict[str, int]] = {}  # session -> its size, the last used last
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def answer(self, question: Question, now: float) -> tuple[int, ...] | None:
        """The ids that decoding the question would give again, if the session has seen it."""
        session = self._use(question, now)
        if session is None:
            return None
        key = (_pack(question.source), question.way)
        found = session.answers.get(key)
        if found is None:
            return None
        session.answers.move_to_end(key)
        return tuple(_unpack(found.ids))

    def earlier(self, question: Question, now: float) -> tuple[Earlier, ...]:
        """Answers to sources like the question's, EARLIER_MAX at most, the most similar first.

        An older version's will do, too.
        """
        session = self._use(question, now)
        if session is None:
            return ()
        source = array("I", question.source)
        ranked = [
            ((_overlap(_unpack(answer.source), source), answer.seq, age), answer)
            for age, answer in enumerate(session.answers.values())
            if _alike(answer.way, question.way)
        ]
        least = self._limits.overlap_min * len(source)
        best = nlargest(EARLIER_MAX, (each for each in ranked if each[0][0] >= least), key=itemgetter(0))
        return tuple(Earlier(tuple(_unpack(answer.ids)), tuple(_unpack(answer.draft))) for _, answer in best)

    def remember(self, question: Question, ids: Sequence[int], now: float, draft: Sequence[int] = ()) -> None:
        """Keep an answer that came to its own end, and the caller's draft of it. An earlier one to the same question
        makes way."""
        self.expire(now)
        name = (question.tenant, question.session)
        session = self._use(question, now)
        if session is None:
            session = self._sessions[name] = _Session(now)
            self._grow(name, session, SESSION_BYTES)
        answer = _Answer(question, ids, draft)
        key = (answer.source, answer.way)
        if (old := session.answers.pop(key, None)) is not None:
            self._grow(name, session, -old.size)
        session.answers[key] = answer
        self._grow(name, session, answer.size)
        while len(session.answers) > self._limits.session_answers_max:
            self._grow(name, session, -session.answers.popitem(last=False)[1].size)
        self._keep_within(question.tenant)

    def expire(self, now: float) -> None:
        """Forget the sessions that nobody has asked for of late."""
        while self._sessions:
            name, session = next(iter(self._sessions.items()))
            if now - session.used < self._limits.idle_s:
                return
            self._forget(name)

    def check(self) -> None:
        """Assert the invariants; for tests."""
        sizes = {name: SESSION_BYTES + sum(a.size for a in s.answers.values()) for name, s in self._sessions.items()}
        assert sizes == {name: session.size for name, session in self._sessions.items()}
        assert {(t, s): size for t, sessions in self._tenants.items() for s, size in sessions.items()} == sizes
        assert self.bytes == sum(sizes.values()) <= self._limits.bytes_max
        for sessions in self._tenants.values():
            assert 0 < len(sessions) <= self._limits.tenant_sessions_max
            assert sum(sessions.values()) <= self._limits.tenant_bytes_max
        assert all(len(session.answers) <= self._limits.session_answers_max for session in self._sessions.values())

    def _use(self, question: Question, now: float) -> _Session | None:
        """The session, now the last used; None when there is none, or it has expired."""
        name = (question.tenant, question.session)
        session = self._sessions.get(name)
        if session is None:
            return None
        if now - session.used >= self._limits.idle_s:
            self._forget(name)
            return None
        session.used = now
        self._sessions.move_to_end(name)
        self._tenants[question.tenant].move_to_end(question.session)
        return session

    def _keep_within(self, tenant: str) -> None:
        """Forget the tenant's oldest sessions while it has too much, then anybody's while all have."""
        limits = self._limits
        own = self._tenants[tenant]
        while own and (len(own) > limits.tenant_sessions_max or sum(own.values()) > limits.tenant_bytes_max):
            self._forget((tenant, next(iter(own))))
        while self.bytes > limits.bytes_max:
            self._forget(next(iter(self._sessions)))

    def _grow(self, name: tuple[str, str], session: _Session, size: int) -> None:
        session.size += size
        self.bytes += size
        self._tenants.setdefault(name[0], OrderedDict())[name[1]] = session.size

    def _forget(self, name: tuple[str, str]) -> None:
        self.bytes -= self._sessions.pop(name).size
        own = self._tenants[name[0]]
        del own[name[1]]
        if not own:
            del self._tenants[name[0]]


def model_id(model: str) -> str:
    """Of `model@version`, the model."""
    return model.partition("@")[0]


def _alike(old: Way, new: Way) -> bool:
    """Whether ids mean the same: of any version of a model, but of no other, whose language may be another."""
    return old.trg_vocab_hash == new.trg_vocab_hash and model_id(old.model) == model_id(new.model)


def _pack(ids: Sequence[int]) -> bytes:
    return array("I", ids).tobytes()


def _unpack(packed: bytes) -> array[int]:
    return array("I", packed)


def _overlap(old: array[int], new: array[int]) -> int:
    """How many ids two sources have in common at their beginnings and, of the rest, at their ends."""
    shorter = min(len(old), len(new))
    front = 0
    while front < shorter and old[front] == new[front]:
        front += 1
    back = 0
    while back < shorter - front and old[-1 - back] == new[-1 - back]:
        back += 1
    return front + back
