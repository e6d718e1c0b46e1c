from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.stack import Stack, full_stack


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Three real processes, shared by the tests of a module that leave it whole."""
    with full_stack(tmp_path_factory.mktemp("stack")) as running:
        yield running


@pytest.fixture
def own_stack(tmp_path: Path) -> Iterator[Stack]:
    """Three real processes for one test that kills some of them."""
    with full_stack(tmp_path) as running:
        yield running
