"""The prover beside this file is importable here; what was proved is printed."""

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

SUMMARY = pytest.StashKey[list[str]]()
# The session "fuzz" installs it; who runs all of pytest by hand may do without.
WITHOUT_Z3 = importlib.util.find_spec("z3") is None
collect_ignore_glob = ["*.py"] if WITHOUT_Z3 else []


@pytest.fixture(scope="session")
def summary(pytestconfig: pytest.Config) -> list[str]:
    """Lines to print at the end of the run."""
    return pytestconfig.stash.setdefault(SUMMARY, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = terminalreporter.config.stash.get(SUMMARY, [])
    if WITHOUT_Z3:
        lines = ["NOTHING WAS PROVED: z3-solver is not installed (nox -s fuzz does it)"]
    if lines:
        terminalreporter.section("proofs")
        for line in lines:
            terminalreporter.write_line(line)
