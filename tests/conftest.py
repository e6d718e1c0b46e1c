from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("simulation")
    group.addoption("--sim-seed", type=int, default=0, help="first seed of the simulations")
    group.addoption("--sim-seeds", type=int, default=50, help="how many seeds each simulation runs")
