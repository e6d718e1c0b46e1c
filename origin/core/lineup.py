"""Whether a model that was found on the disk may take the place of the one that serves its pair.

Decides: what speaks against it, before it is loaded. Must not know: files, tensors, links, what becomes of the verdict.
Rules: a name means one set of files; models that are held together fit the memory that models may take; an edge that
reads the ids of the old model can read those of the new one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

import msgspec

GIB = 1 << 30


class Vocabularies(NamedTuple):
    """What makes and reads a pair's ids."""

    pair: str
    source: str
    target: str


class Candidate(msgspec.Struct, frozen=True):
    """A model that could be served. `digests` tell its files from others'; `bytes` is what it will take."""

    name: str
    vocabularies: Vocabularies
    digests: tuple[str, ...]
    bytes: int


class Objection(NamedTuple):
    """Why a model is not taken."""

    problem: Literal["version_reused", "draining", "vocabulary", "memory"]
    detail: str


def is_new(candidate: Candidate, serving: Candidate | None) -> bool:
    """Whether there is anything to be done for a model."""
    return serving is None or (candidate.name, *_files(candidate)) != (serving.name, *_files(serving))


def objection(
    candidate: Candidate,
    serving: Candidate | None,
    *,
    retiring: Collection[Candidate],
    bytes_left: int,
    edges: Sequence[Collection[Vocabularies]],
) -> Objection | None:
    """What speaks against a new model. `retiring`: models on their way out. `edges`: what each that is connected can
    read; nothing, if it never said."""
    if serving is not None and candidate.name == serving.name:
        return Objection("version_reused", f"{candidate.name} has other files than those served: give it a new version")
    if any(candidate.name == old.name for old in retiring):
        return Objection("draining", f"{candidate.name} was replaced a moment ago, and has not ended yet")
    if serving is not None and candidate.vocabularies != serving.vocabularies:
        without = sum(_left_behind(edge, serving.vocabularies, candidate.vocabularies) for edge in edges)
        if without:
            return Objection(
                "vocabulary", f"{without} of {len(edges)} edges don't have its vocabulary: reload them first"
            )
    if candidate.bytes > bytes_left:
        return Objection("memory", f"it takes {gib(candidate.bytes)}, and {gib(bytes_left)} are left")
    return None


def gib(size: int) -> str:
    """Bytes for people."""
    return f"{max(size, 0) / GIB:.2f} GiB"


def _files(candidate: Candidate) -> tuple[object, ...]:
    return candidate.digests, candidate.vocabularies


def _left_behind(edge: Collection[Vocabularies], old: Vocabularies, new: Vocabularies) -> bool:
    """One that could use the old model, or may have, and can't use the new one."""
    return new not in edge and (old in edge or not edge)
