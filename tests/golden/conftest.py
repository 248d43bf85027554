"""The ``--update-golden`` flag: write the files instead of comparing with them."""

import pytest

FLAG = "--update-golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        FLAG,
        action="store_true",
        help="write the golden files anew; read the difference before committing it",
    )


@pytest.fixture
def updating(request: pytest.FixtureRequest) -> bool:
    # Without a default this fails where the option was not registered: pytest reads
    # this file too late for that when it is given a folder above.
    return bool(request.config.getoption(FLAG, default=False))
