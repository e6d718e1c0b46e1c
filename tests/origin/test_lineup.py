"""What speaks against a new model, before it is loaded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from origin.core.lineup import Candidate, Objection, Vocabularies, gib, is_new, objection

OLD = Vocabularies("en-de", "s1", "t1")
NEW = Vocabularies("en-de", "s2", "t2")
OTHER = Vocabularies("en-pt", "s3", "s3")


def candidate(
    version: str, vocabularies: Vocabularies = OLD, size: int = 10, digests: tuple[str, ...] = ("d",)
) -> Candidate:
    return Candidate(f"m@{version}", vocabularies, digests, size)


def against(new: Candidate, serving: Candidate | None, **fields: object) -> Objection | None:
    fields = {"retiring": (), "bytes_left": 100, "edges": (), **fields}
    return objection(new, serving, **fields)  # type: ignore[arg-type]


def problem(new: Candidate, serving: Candidate | None, **fields: object) -> str:
    found = against(new, serving, **fields)
    return found.problem if found is not None else ""


def test_what_is_served_already_is_not_new() -> None:
    assert is_new(candidate("1"), None)
    assert not is_new(candidate("1"), candidate("1", size=99))
    assert is_new(candidate("2"), candidate("1"))
    assert is_new(candidate("1", digests=("other",)), candidate("1"))
    assert is_new(candidate("1", NEW), candidate("1"))


def test_nothing_speaks_against_a_newer_version_that_fits() -> None:
    assert against(candidate("2"), candidate("1")) is None
    assert against(candidate("1"), None) is None


def test_a_version_names_one_set_of_files() -> None:
    found = against(candidate("1", digests=("other",)), candidate("1"))
    assert found is not None and found.problem == "version_reused" and "m@1" in found.detail


def test_one_that_has_not_ended_can_not_come_again() -> None:
    assert problem(candidate("1"), candidate("2"), retiring=[candidate("1")]) == "draining"
    assert problem(candidate("3"), candidate("2"), retiring=[candidate("1")]) == ""


def test_what_does_not_fit_is_told_in_gib() -> None:
    found = against(candidate("2", size=3 << 30), candidate("1"), bytes_left=1 << 30)
    assert found == Objection("memory", "it takes 3.00 GiB, and 1.00 GiB are left")
    assert problem(candidate("2", size=100), None) == ""
    assert problem(candidate("2", size=101), None) == "memory"
    assert gib(-5) == "0.00 GiB"


def test_edges_that_read_the_old_ids_must_read_the_new_ones() -> None:
    new, old = candidate("2", NEW), candidate("1")
    assert problem(new, old, edges=[{OLD, NEW}, {OTHER}]) == ""
    assert problem(new, old, edges=[{OLD, NEW}, {OLD, OTHER}]) == "vocabulary"
    assert problem(new, old, edges=[{OTHER}, set()]) == "vocabulary", "one that never said what it has"
    found = against(new, old, edges=[{OLD}, {OLD}, {OLD, NEW}])
    assert found is not None and "2 of 3 edges" in found.detail
    assert problem(candidate("2"), old, edges=[{OTHER}, set()]) == "", "the vocabulary is the old one"
    assert problem(new, None, edges=[{OLD}]) == "", "there is no old model that they would lose"


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 60)), max_size=12),
    st.integers(1, 100),
)
def test_whatever_is_taken_fits(found: list[tuple[int, int]], bytes_max: int) -> None:
    serving: dict[int, Candidate] = {}
    retiring: list[Candidate] = []
    for version, (pair, size) in enumerate(found):
        new = candidate(str(version), Vocabularies(str(pair), "s", "t"), size)
        held = sum(each.bytes for each in (*serving.values(), *retiring))
        if against(new, serving.get(pair), retiring=retiring, bytes_left=bytes_max - held) is None:
            if pair in serving:
                retiring.append(serving[pair])
            serving[pair] = new
        assert sum(each.bytes for each in (*serving.values(), *retiring)) <= bytes_max
