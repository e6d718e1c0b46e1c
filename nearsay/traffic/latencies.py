"""What is usual in a pool: the latencies of its recent answers, by kind of request.

Decides: which requests are comparable (equal keys), and when enough is known to say what is usual.
Must not know: what a key stands for, peers, clocks (`now` is an argument, monotonic seconds).
Invariants: at most `keys_max` kinds are kept, and the one not heard of for longest makes room; no answer before
`samples_min` values. An attempt that was given up counts with the time it had taken, which is too little: it keeps its
rank above any quantile that it had passed, and a caller records no other.
"""

from __future__ import annotations

from collections.abc import Hashable

from nearsay.traffic.windowed import WindowedSketch

WINDOW_S, WINDOWS = 5.0, 6
KEYS_MAX = 256
SAMPLES_MIN = 50


class Latencies:
    """Windowed sketches by key, in seconds."""

    def __init__(self, *, keys_max: int = KEYS_MAX, samples_min: int = SAMPLES_MIN) -> None:
        assert keys_max > 0 and samples_min > 0
        self._keys_max = keys_max
        self._samples_min = samples_min
        self._sketches: dict[Hashable, WindowedSketch] = {}  # least recently observed first

    def __len__(self) -> int:
        return len(self._sketches)

    def observe(self, key: Hashable, latency_s: float, now: float) -> None:
        """Count one latency of this kind."""
        sketch = self._sketches.pop(key, None)
        if sketch is None:
            if len(self._sketches) >= self._keys_max:
                del self._sketches[next(iter(self._sketches))]
            sketch = WindowedSketch(window_s=WINDOW_S, windows=WINDOWS, now=now)
        self._sketches[key] = sketch
        sketch.add(latency_s * 1000.0, now)  # the sketch's resolution suits milliseconds

    def quantile(self, key: Hashable, q: float, now: float) -> float | None:
        """Seconds at rank `q` of this kind; None while too little is known."""
        sketch = self._sketches.get(key)
        if sketch is None or sketch.count(now) < self._samples_min:
            return None
        return sketch.quantile(q, now) / 1000.0
