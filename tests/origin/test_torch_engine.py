"""The torch engine gives every sequence the ids it would get alone, whoever its neighbours are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nearsay.nmt.cache import SlotCache
from nearsay.nmt.decoding import beam_search
from nearsay.nmt.transformer import Seq2Seq
from origin.core.sequence import Ending
from origin.engine.self_measure import PASS_TOKENS, pass_tokens
from tests.origin import tiny

SOURCES = tiny.sources(12)
MODELS = {
    "attention": tiny.model(),
    "ssru": tiny.model("ssru"),
    "prefix": tiny.model(prefix_ids=(5, 9)),
    "suppressed": tiny.model(suppressed_ids=(3, 7, 11, 40)),
}
PLAIN = {name: [tiny.plain(model, source) for source in SOURCES] for name, model in MODELS.items()}
each_model = pytest.mark.parametrize("name", MODELS)


def right(ending: Ending, ids: tuple[int, ...], model: Seq2Seq) -> None:
    assert (ending.ids, ending.reason) == (ids, "length" if len(ids) == tiny.limit(model) else "stop")


@torch.no_grad()
def log_prob(model: Seq2Seq, source: list[int], ending: Ending) -> float:
    """Log-probability of an ending's ids (and eos), by teacher forcing."""
    fed = torch.tensor([[-1, *ending.ids]])
    scores = model(torch.tensor([source]), torch.tensor([len(source)]), fed)[0].log_softmax(-1)  # [T, V]
    said = [*ending.ids, 0] if ending.reason == "stop" else [*ending.ids]
    return sum(float(scores[at, token]) for at, token in enumerate(said))


def test_the_tiny_models_are_worth_testing_with() -> None:
    for plain in PLAIN.values():
        assert len({len(ids) for ids in plain}) >= 3 and len(set(plain)) >= 5


@each_model
def test_alone(name: str) -> None:
    for source, ids in zip(SOURCES[:4], PLAIN[name], strict=False):
        origin = tiny.Origin(MODELS[name], slots=1)
        origin.submit(source)
        right(origin.finish()[1], ids, MODELS[name])


@each_model
def test_in_ragged_batches_and_more_than_the_slots(name: str) -> None:
    origin = tiny.Origin(MODELS[name], slots=5)
    numbers = [origin.submit(source) for source in SOURCES]
    ended = origin.finish()
    for number, ids in zip(numbers, PLAIN[name], strict=True):
        right(ended[number], ids, MODELS[name])


@each_model
def test_a_neighbour_that_leaves_changes_nothing(name: str) -> None:
    origin = tiny.Origin(MODELS[name], slots=6)
    numbers = [origin.submit(source) for source in SOURCES[:6]]
    origin.step()
    origin.step()
    for leaving in numbers[::2]:
        origin.scheduler.cancel(leaving, 0.0)
    late = [origin.submit(source) for source in SOURCES[6:9]]
    ended = origin.finish()
    for number, ids in [*zip(numbers, PLAIN[name], strict=False), *zip(late, PLAIN[name][6:], strict=False)]:
        if number in ended:
            right(ended[number], ids, MODELS[name])
    assert set(numbers[1::2] + late) <= set(ended)


@each_model
def test_a_right_draft_takes_one_pass(name: str) -> None:
    origin = tiny.Origin(MODELS[name])
    numbers = [origin.submit(source, draft=ids) for source, ids in zip(SOURCES[:6], PLAIN[name], strict=False)]
    ended = origin.finish()
    for number, ids in zip(numbers, PLAIN[name], strict=False):
        right(ended[number], ids, MODELS[name])
        assert ended[number].steps == 1
        assert ended[number].draft_accepted == ended[number].draft_tokens == min(len(ids), tiny.limit(MODELS[name]) - 1)


@each_model
@pytest.mark.parametrize("damage", ["wrong in the middle", "too short", "goes on after the end", "garbage"])
def test_a_wrong_draft_changes_no_id(name: str, damage: str) -> None:
    origin = tiny.Origin(MODELS[name])
    numbers, steps_saved = [], []
    for source, ids in zip(SOURCES[:8], PLAIN[name], strict=False):
        half = len(ids) // 2
        draft = {
            "wrong in the middle": (*ids[:half], 59, *ids[half + 1 :]),
            "too short": ids[:half],
            "goes on after the end": (*ids, 4, 4, 4),
            "garbage": tuple((7 * k + 3) % 59 + 1 for k in range(tiny.TARGET_MAX)),
        }[damage]
        numbers.append(origin.submit(source, draft=draft))
        steps_saved.append(half if damage in ("wrong in the middle", "too short") else 0)
    ended = origin.finish()
    for number, ids, saved in zip(numbers, PLAIN[name], steps_saved, strict=False):
        right(ended[number], ids, MODELS[name])
        assert ended[number].draft_accepted >= saved
        assert ended[number].steps + ended[number].draft_accepted == len(ids) + (ended[number].reason == "stop")


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(SOURCES) - 1),
            st.integers(0, 6),
            st.lists(st.integers(1, tiny.VOCAB - 1), max_size=10),
            st.integers(0, 24),
        ),
        max_size=14,
    ),
    st.sampled_from(sorted(MODELS)),
)
def test_any_history_of_arrivals_and_drafts(arrivals: list[tuple[int, int, list[int], int]], name: str) -> None:
    """Sequences join between steps, each with a draft that is right for a while and then anything."""
    origin = tiny.Origin(MODELS[name], slots=4)
    wanted = {}
    for which, steps_before, noise, right_ids in arrivals:
        for _ in range(steps_before):
            origin.step()
        draft = (*PLAIN[name][which][:right_ids], *noise)
        wanted[origin.submit(SOURCES[which], draft=draft)] = PLAIN[name][which]
    ended = origin.finish()
    for number, ids in wanted.items():
        right(ended[number], ids, MODELS[name])


@pytest.mark.parametrize("beam", [1, 4])
def test_warming_up_leaves_nothing_behind(beam: int) -> None:
    origin = tiny.Origin(tiny.model(), slots=10, beam=beam)
    assert (origin.served[0].beam, origin.served[0].beam_max) == (beam, 4)
    assert not origin.engine._runners["tiny0@1"]._running
    number = origin.submit(SOURCES[0])
    right(origin.finish()[number], PLAIN["attention"][0], MODELS["attention"])


def test_several_models_share_a_step() -> None:
    names = ("attention", "ssru", "prefix")
    origin = tiny.Origin(*(MODELS[name] for name in names), slots=3)
    numbers = {(which, at): origin.submit(SOURCES[at], which=which) for at in range(5) for which in range(3)}
    ended = origin.finish()
    for (which, at), number in numbers.items():
        right(ended[number], PLAIN[names[which]][at], MODELS[names[which]])


def test_the_length_limit_of_a_request() -> None:
    whole = max(PLAIN["attention"], key=len)
    origin = tiny.Origin(MODELS["attention"])
    source = SOURCES[PLAIN["attention"].index(whole)]
    for limit in (1, 2, 5):
        number = origin.submit(source, target_tokens_max=limit, draft=whole)
        ending = origin.finish()[number]
        assert (ending.ids, ending.reason, ending.draft_tokens) == (whole[:limit], "length", limit - 1)


def test_log_prob_is_that_of_the_chosen_ids() -> None:
    model, source, ids = MODELS["attention"], SOURCES[1], PLAIN["attention"][1]
    origin = tiny.Origin(model)
    plain = origin.submit(source, want_log_prob=True)
    drafted = origin.submit(source, want_log_prob=True, draft=ids[:2])
    silent = origin.submit(source)
    ended = origin.finish()
    expected = log_prob(model, source, ended[plain])
    assert ended[plain].log_prob == pytest.approx(expected, abs=1e-3)
    assert ended[drafted].log_prob == pytest.approx(expected, abs=1e-3)
    assert ended[silent].log_prob is None


def test_nan_logits_fail_only_their_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.model()
    origin = tiny.Origin(model, slots=4)
    numbers = [origin.submit(source) for source in SOURCES[:4]]
    decode_step = model.decode_step

    def poisoned(cache: object, slots: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        logits = decode_step(cache, slots, ids)  # type: ignore[arg-type]
        logits[slots == 1, 17] = float("nan")
        return logits

    monkeypatch.setattr(model, "decode_step", poisoned)
    ended = origin.finish()
    assert (ended[numbers[1]].reason, ended[numbers[1]].ids) == ("failed", ())
    for number, ids in zip(numbers, PLAIN["attention"], strict=False):
        if number != numbers[1]:
            right(ended[number], ids, model)
    again = origin.submit(SOURCES[0])
    monkeypatch.undo()
    right(origin.finish()[again], PLAIN["attention"][0], model)


ALIKE = [[token, *SOURCES[0][1:]] for token in range(2, 8)]  # six of one length: a source is encoded only once
SAYS = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"


def tighten(model: Seq2Seq, where: str, fits: Callable[[torch.Tensor], bool], patch: pytest.MonkeyPatch) -> None:
    """Passes of which the ids (of an encode) or the slots do not fit run out of memory."""
    real = getattr(model, where)

    def tight(*args: torch.Tensor) -> torch.Tensor:
        if not fits(args[0] if where == "encode" else args[1]):
            raise RuntimeError(SAYS)
        result: torch.Tensor = real(*args)
        return result

    patch.setattr(model, where, tight)


@pytest.mark.parametrize("where", ["encode", "decode_step", "verify"])
def test_out_of_memory_makes_passes_smaller_and_loses_nobody(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.model()
    origin = tiny.Origin(model, slots=6)
    tighten(model, where, lambda rows: len(rows) <= 2, monkeypatch)
    numbers = [origin.submit(source, draft=(1,) if where == "verify" else ()) for source in ALIKE]
    ended = origin.finish()
    for number, source in zip(numbers, ALIKE, strict=True):
        right(ended[number], tiny.plain(MODELS["attention"], source), model)
    assert origin.cut > 0 and origin.scheduler.counts.replays == 0
    assert origin.scheduler.load().slots_free == 6


@pytest.mark.parametrize("where", ["encode", "decode_step"])
def test_what_does_not_even_fit_alone_is_shed(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.model()
    origin = tiny.Origin(model, slots=6)
    numbers = [origin.submit(source) for source in ALIKE]
    lost = ALIKE[3][0] if where == "encode" else 3  # by its first id, or its slot
    tighten(model, where, lambda rows: lost not in rows.flatten(), monkeypatch)
    ended = origin.finish()
    assert (ended[numbers[3]].reason, ended[numbers[3]].error) == ("failed", "overloaded")
    for number, source in zip(numbers, ALIKE, strict=True):
        if number != numbers[3]:
            right(ended[number], tiny.plain(MODELS["attention"], source), model)


def test_out_of_memory_behind_the_pass_begins_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the logits mean has been taken in by some: that can't be repeated, so each begins again, alone."""
    model = tiny.model()
    origin = tiny.Origin(model, slots=6)
    numbers = [origin.submit(source) for source in ALIKE]
    runner = origin.engine._runners["tiny0@1"]
    real = runner._settle_greedy

    def tight(greedy: list[object], logits: torch.Tensor) -> object:
        outcomes = real(greedy, logits)  # type: ignore[arg-type]
        if len(greedy) > 4:
            raise MemoryError
        return outcomes

    monkeypatch.setattr(runner, "_settle_greedy", tight)
    ended = origin.finish()
    for number, source in zip(numbers, ALIKE, strict=True):
        right(ended[number], tiny.plain(MODELS["attention"], source), model)
    assert origin.scheduler.counts.replays == 6


def test_whoever_breaks_a_pass_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.model()
    origin = tiny.Origin(model, slots=8)
    numbers = [origin.submit(source) for source in SOURCES[:5]]
    beam = origin.submit(SOURCES[5], width=3)
    runner = origin.engine._runners["tiny0@1"]
    real = runner._forward

    def explode(works: list[object]) -> torch.Tensor:
        if any(work.sequence == numbers[2] for work in works):  # type: ignore[attr-defined]
            raise ValueError("boom")
        return real(works)  # type: ignore[arg-type]

    monkeypatch.setattr(runner, "_forward", explode)
    ended = origin.finish()
    assert (ended[numbers[2]].reason, ended[numbers[2]].error) == ("failed", "internal_error")
    for number, ids in zip(numbers, PLAIN["attention"], strict=False):
        if number != numbers[2]:
            right(ended[number], ids, model)
    (best,) = beam_search(model, [SOURCES[5]], width=3)[0]
    assert ended[beam].ids == best.ids
    assert origin.scheduler.counts.replays == 6


def test_a_model_that_breaks_every_time_fails_its_own_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, broken = tiny.model(), tiny.model()
    origin = tiny.Origin(whole, broken, slots=4)
    fine = origin.submit(SOURCES[0], which=0)
    doomed = [origin.submit(source, which=1) for source in SOURCES[:2]]

    def explode(*args: torch.Tensor) -> torch.Tensor:
        raise ValueError("boom")

    monkeypatch.setattr(broken, "decode_step", explode)
    ended = origin.finish()
    assert [(ended[number].reason, ended[number].error) for number in doomed] == [("failed", "internal_error")] * 2
    right(ended[fine], PLAIN["attention"][0], whole)


def test_an_ssru_that_runs_out_of_memory_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its state is overwritten during a pass: going on from it would change ids."""
    model = tiny.model("ssru")
    origin = tiny.Origin(model, slots=4)
    numbers = [origin.submit(source) for source in SOURCES[:4]]
    origin.step()
    tighten(model, "decode_step", lambda rows: len(rows) <= 2, monkeypatch)
    ended = origin.finish()
    for number, ids in zip(numbers, PLAIN["ssru"], strict=False):
        right(ended[number], ids, model)
    assert origin.scheduler.counts.replays > 0
    tighten(model, "decode_step", lambda _: False, monkeypatch)
    number = origin.submit(SOURCES[0])
    assert origin.finish()[number].error == "overloaded"


@each_model
@pytest.mark.parametrize("width", [2, 4])
def test_beams_beside_greedy_rows_are_those_of_beam_search(name: str, width: int) -> None:
    """Beams and greedy sequences share passes, join at different steps and outnumber the slots."""
    model = MODELS[name]
    expected = [found[0] for found in beam_search(model, SOURCES[:6], width=width)]
    origin = tiny.Origin(model, slots=2 * width + 1)
    beams = []
    for at, source in enumerate(SOURCES[:6]):
        beams.append(origin.submit(source, width=width, want_log_prob=True))
        origin.submit(SOURCES[at + 6])
        origin.step()
    ended = origin.finish()
    for number, best in zip(beams, expected, strict=True):
        assert (ended[number].ids, ended[number].reason) == (best.ids, "length" if best.truncated else "stop")
    greedy = [ending for number, ending in sorted(ended.items()) if number not in beams]
    for ending, ids in zip(greedy, PLAIN[name][6:], strict=True):
        right(ending, ids, model)


def test_log_prob_of_a_beam_is_that_of_its_ids() -> None:
    model, source = MODELS["attention"], SOURCES[4]
    origin = tiny.Origin(model)
    number = origin.submit(source, width=4, want_log_prob=True)
    ending = origin.finish()[number]
    assert ending.log_prob == pytest.approx(log_prob(model, source, ending), abs=1e-3)


def test_a_cancelled_beam_frees_its_slots_and_nan_fails_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.model()
    origin = tiny.Origin(model, slots=4)
    number = origin.submit(SOURCES[0], width=4)
    origin.step()
    origin.step()
    origin.scheduler.cancel(number, 0.0)
    assert origin.scheduler.load().slots_free == 4
    late = origin.submit(SOURCES[1])
    right(origin.finish()[late], PLAIN["attention"][1], model)
    real = model.decode_step
    monkeypatch.setattr(model, "decode_step", lambda *args: real(*args).fill_(float("nan")))
    number = origin.submit(SOURCES[0], width=2)
    assert origin.finish()[number].reason == "failed"


@each_model
def test_a_wrong_word_does_not_waste_the_tail(name: str) -> None:
    """The draft is taken up again behind the word; no draft ever costs a pass more than plain greedy."""
    origin = tiny.Origin(MODELS[name])
    long = [(source, ids) for source, ids in zip(SOURCES, PLAIN[name], strict=True) if len(ids) >= 8]
    assert long
    for source, ids in long:
        plain = origin.submit(source)
        steps = origin.finish()[plain].steps
        for at in (0, 2, len(ids) // 2):
            for draft in ((*ids[:at], 59, *ids[at + 1 :]), (*ids[:at], *ids[at + 1 :]), (*ids[:at], 58, *ids[at:])):
                number = origin.submit(source, draft=draft)
                ending = origin.finish()[number]
                right(ending, ids, MODELS[name])
                assert ending.steps <= steps
                assert ending.steps + ending.draft_accepted == len(ids) + (ending.reason == "stop")
                if len(set(ids)) == len(ids):  # no id to take for another
                    assert ending.steps <= 6


@each_model
def test_alignment_on_request_drafted_or_not_beam_or_not(name: str) -> None:
    model = MODELS[name]
    origin = tiny.Origin(model, slots=8)
    asked = []
    for source, ids in zip(SOURCES, PLAIN[name], strict=True):
        asked.append((source, origin.submit(source, want_alignment=True)))
        asked.append((source, origin.submit(source, want_alignment=True, draft=ids[:3])))
        asked.append((source, origin.submit(source, want_alignment=True, width=2)))
        asked.append((source, origin.submit(source)))
    ended = origin.finish()
    for at, (source, number) in enumerate(asked):
        ending = ended[number]
        wanted = at % 4 < 3 and ending.reason == "stop"
        assert len(ending.alignment) == (len(ending.ids) if wanted else 0)
        assert all(0 <= where < max(len(source) - 1, 1) for where in ending.alignment)
    for first in range(0, len(asked), 4):
        assert ended[asked[first][1]].alignment == ended[asked[first + 1][1]].alignment


@each_model
def test_the_n_best_are_those_of_beam_search(name: str) -> None:
    model = MODELS[name]
    origin = tiny.Origin(model, slots=8)
    numbers = [origin.submit(source, width=4, n_best=3) for source in SOURCES[:4]]
    one = origin.submit(SOURCES[0], width=4)
    ended = origin.finish()
    for number, found in zip(numbers, beam_search(model, SOURCES[:4], width=4, n_best=3), strict=True):
        assert ended[number].n_best == tuple(other.ids for other in found if not other.truncated)
    assert ended[one].n_best == ()


@pytest.mark.parametrize("penalty", [0.0, 0.5, 2.0])
def test_the_length_penalty_of_a_request(penalty: float) -> None:
    model = MODELS["attention"]
    origin = tiny.Origin(model, slots=8)
    numbers = [origin.submit(s, width=4, length_penalty=penalty, want_log_prob=True) for s in SOURCES[:6]]
    plain = [origin.submit(source, width=4) for source in SOURCES[:6]]
    ended = origin.finish()
    for number, source, (best,) in zip(
        numbers, SOURCES, beam_search(model, SOURCES[:6], width=4, length_penalty=penalty), strict=False
    ):
        assert ended[number].ids == best.ids
        assert ended[number].log_prob == pytest.approx(log_prob(model, source, ended[number]), abs=1e-3)
    assert [ended[number].ids for number in numbers] != [ended[number].ids for number in plain]


def test_a_loop_ends_as_too_long_and_at_the_same_id_drafted_or_not() -> None:
    """A target made of one id, over and over, from a source that can't explain it."""
    model = tiny.model(target_tokens_max=200)
    with torch.no_grad():
        model.output.weight.zero_()
        model.output_bias[9] = 10.0
    origin = tiny.Origin(model, slots=4)
    plain = origin.submit([5, 0])
    drafted = [origin.submit([5, 0], draft=(9,) * length) for length in (3, 22, 150)]
    ended = origin.finish()
    assert ended[plain].reason == "length" and 24 <= len(ended[plain].ids) <= 30
    assert all((ended[n].ids, ended[n].reason) == (ended[plain].ids, "length") for n in drafted)


def test_what_a_pass_costs_is_measured_within_bounds() -> None:
    """On a clock on which a pass takes 10 s, and each token of it 1 s more."""
    now = 0.0
    model = tiny.model()
    verify = model.verify

    def slow(cache: SlotCache, slots: torch.Tensor, ids: torch.Tensor, lens: torch.Tensor) -> torch.Tensor:
        nonlocal now
        now += 10.0 + ids.shape[1]
        return verify(cache, slots, ids, lens)

    model.verify = slow  # type: ignore[method-assign]
    cache = model.new_cache(2)
    assert pass_tokens(model, cache, lambda: now) == pytest.approx(10.0)
    assert cache.lengths == [0, 0]
    assert pass_tokens(model, cache, lambda: 0.0) == PASS_TOKENS  # a clock that stands still says nothing


@each_model
def test_evicted_with_a_draft_under_way_and_resumed(name: str) -> None:
    """Batch sequences with damaged drafts lose their slots to interactive ones, and go on from what they had."""
    origin = tiny.Origin(MODELS[name], slots=2)
    expected = {}
    for source, ids in zip(SOURCES[:4], PLAIN[name], strict=False):
        draft = (*ids[:2], 59, *ids[3:5], 58, *ids[6:])
        expected[origin.submit(source, draft=draft, priority="batch", want_alignment=True)] = ids
    for source, ids in zip(SOURCES[4:], PLAIN[name][4:], strict=True):
        origin.step()
        expected[origin.submit(source, draft=ids[:3])] = ids
    ended = origin.finish()
    assert origin.scheduler.counts.evictions > 0
    for number, ids in expected.items():
        right(ended[number], ids, MODELS[name])
