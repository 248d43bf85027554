"""All tests run with the checks between passes that are meant for tests."""

import gc
import os
import sys

import pytest

# Every graph is legal at its stage, and its text reads back as the same graph.
os.environ.setdefault("UOPC_CHECK", "2")
# Tests count how many plans there are, so none is let go behind their back.
os.environ.setdefault("UOPC_PLANS", "1000000")


def pytest_collection_finish() -> None:
    """Keep the collector away from thousands of tests, which live to the end anyway.

    Many tests collect by themselves, and each time it would scan all of that.
    """
    gc.collect()
    gc.freeze()


def pytest_runtest_setup() -> None:
    """No test inherits the misses of others, which make a warning of a constant."""
    if constants := sys.modules.get("uopc.kernelize.constants"):
        constants._seen.clear()


def pytest_addoption(parser: pytest.Parser) -> None:
    """For the folders `fuzz` and `oracle`."""
    what = "random programs to run: FIRST:COUNT"
    parser.addoption("--fuzz", default="0:1000", help=what)
