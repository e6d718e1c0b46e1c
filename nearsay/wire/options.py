"""How a request wants its texts decoded: what it may ask for together, and within which bounds, at every door.

Decides: which options are refused. Must not know: bodies, links, models.
Invariant: what comes out is None where it says nothing more than the defaults.
"""

from __future__ import annotations

from nearsay.wire.errors import InvalidRequest
from nearsay.wire.messages import Decoding, Stability, Tier

BEAM_MAX = 8
ALTERNATIVES_MAX = 8  # a beam of 8 knows 7 beside the best: fewer may come than were asked for
LENGTH_PENALTY_MAX = 5.0
MASK_MAX = 64


def valid_stability(stability: Stability | None, session: str) -> Stability | None:
    """Raises InvalidRequest (invalid_request)."""
    if stability is None or stability == Stability():
        return None
    if stability.bias is not None and not 0.0 <= stability.bias < 1.0:
        raise InvalidRequest("stability.bias: must be at least 0 and less than 1")
    if stability.bias and not session:
        raise InvalidRequest("stability.bias: leans on a session's previous answer, so 'session' is needed")
    if not 0 <= stability.mask <= MASK_MAX:
        raise InvalidRequest(f"stability.mask: must be 0 to {MASK_MAX} words")
    return stability


def valid_decoding(decoding: Decoding | None, tier: Tier, stability: Stability | None) -> Decoding | None:
    """Raises InvalidRequest (invalid_request)."""
    if decoding is None or decoding == Decoding():
        return None
    if not 0 <= decoding.beam <= BEAM_MAX:
        raise InvalidRequest(f"beam: must be 1 to {BEAM_MAX}, or 0 for the model's own")
    if not 0 <= decoding.alternatives <= ALTERNATIVES_MAX:
        raise InvalidRequest(f"alternatives: must be 0 to {ALTERNATIVES_MAX}")
    if decoding.beam and min(decoding.alternatives + 1, BEAM_MAX) > decoding.beam:
        raise InvalidRequest("alternatives: must be fewer than 'beam'")
    if decoding.length_penalty is not None and not 0.0 <= decoding.length_penalty <= LENGTH_PENALTY_MAX:
        raise InvalidRequest(f"length_penalty: must be 0 to {LENGTH_PENALTY_MAX:g}")
    if tier == "edge":
        raise InvalidRequest("tier: beam, length_penalty, alternatives and alignment are an origin's to give")
    if stability is not None and stability.bias and (decoding.beam > 1 or decoding.alternatives):
        raise InvalidRequest("stability.bias: a beam and alternatives can't lean on an earlier answer")
    return decoding
