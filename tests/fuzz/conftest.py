"""Which random programs to run: ``--fuzz FIRST:COUNT`` asks for others, or for more."""

import pytest

FLAG = "--fuzz"
DEFAULT = "0:300"
BATCH = 50  # programs in one compiled file


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(FLAG, default=DEFAULT, help="random programs to run: FIRST:COUNT")


def seeds(config: pytest.Config) -> range:
    first, _, count = config.getoption(FLAG, default=DEFAULT).partition(":")
    return range(int(first), int(first) + int(count))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "batch" in metafunc.fixturenames:
        every = seeds(metafunc.config)
        batches = [every[i : i + BATCH] for i in range(0, len(every), BATCH)]
        names = [f"{b.start}-{b.stop - 1}" for b in batches]
        metafunc.parametrize("batch", batches, ids=names)
