"""Which random programs to run: ``--fuzz FIRST:COUNT`` asks for others, or for more."""

import pytest

BATCH = 100  # programs in one compiled file


def batches(config: pytest.Config) -> list[range]:
    first, _, count = config.getoption("--fuzz").partition(":")
    every = range(int(first), int(first) + int(count))
    return [every[i : i + BATCH] for i in range(0, len(every), BATCH)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of each batch; what takes long is done to the first three only."""
    for name, count in (("batch", None), ("early", 3)):
        if name in metafunc.fixturenames:
            chosen = batches(metafunc.config)[:count]
            ids = [f"{b.start}-{b.stop - 1}" for b in chosen]
            metafunc.parametrize(name, chosen, ids=ids)
