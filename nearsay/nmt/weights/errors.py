"""What can be wrong with weights on disk."""

from __future__ import annotations


class WeightsError(ValueError):
    """The files at a path are not a model that we can load; the message says which file and why."""
