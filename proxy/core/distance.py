"""Round trips from distance: what is expected between two places before anything was measured. Pure arithmetic."""

from __future__ import annotations

import math

Degrees = tuple[float, float]  # latitude, longitude

EARTH_KM = 6371.0
NEAREST_MS = 2.0
# Light in fibre does 200 km a millisecond; paths on the internet are up to twice as long as the great circle (Bozkurt
# et al., "Why Is the Internet So Slow?!", PAM 2017).
MS_PER_KM = 2.0 / 200.0 * 1.7


def prior_rtt_ms(one: Degrees, other: Degrees) -> float:
    """Round trip that the distance between two places lets expect."""
    return NEAREST_MS + great_circle_km(one, other) * MS_PER_KM


def great_circle_km(one: Degrees, other: Degrees) -> float:
    """Distance on the sphere (haversine)."""
    lat1, lon1, lat2, lon2 = map(math.radians, (*one, *other))
    a = math.sin((lat2 - lat1) / 2) ** 2 + math.cos(lat1) * math.cos(lat2) * math.sin((lon2 - lon1) / 2) ** 2
    return 2 * EARTH_KM * math.asin(min(1.0, math.sqrt(a)))
