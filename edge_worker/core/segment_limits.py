"""Named bounds of one segment, each default written once."""

from __future__ import annotations

import msgspec


class SegmentLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one segment."""

    source_tokens_max: int = 128  # longer segments are split; students are trained on sentences
    target_tokens_max: int = 256
    fallback_reserve_ms: float = 100.0  # kept back from an origin's budget, so that the edge can still answer
    fallback_share_max: float = 0.25  # but at most this share of it
    draft_ms_max: float = 50.0  # an origin gets no draft that would take longer than this here
    session_bias: float = 0.2  # of a session's growing segment towards its previous answer, unless the request says

    def fallback_reserve_s(self, left_s: float) -> float:
        """What is kept back of the time left for an answer of our own."""
        return min(self.fallback_reserve_ms / 1000.0, self.fallback_share_max * left_s)
