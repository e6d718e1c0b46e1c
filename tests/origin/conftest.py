from __future__ import annotations

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`--sim-seeds 1000` for more of them, `--sim-seed 37 --sim-seeds 1` to replay one."""
    if "sim_seed" in metafunc.fixturenames:
        first, count = metafunc.config.getoption("--sim-seed"), metafunc.config.getoption("--sim-seeds")
        metafunc.parametrize("sim_seed", range(first, first + count))
