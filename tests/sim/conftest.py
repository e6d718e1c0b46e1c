from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.world import make_models


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`seed` takes SEEDS values from SEED on: `--sim-seeds 1000`, or `--sim-seed 37 --sim-seeds 1` to replay one."""
    if "seed" in metafunc.fixturenames:
        first, count = metafunc.config.getoption("--sim-seed"), metafunc.config.getoption("--sim-seeds")
        metafunc.parametrize("seed", range(first, first + count))


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_models(tmp_path_factory.mktemp("models"))
