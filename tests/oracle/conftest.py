"""The helpers beside this file are importable here; without JAX nothing is compared."""

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

# One session of nox installs it; who runs all of pytest by hand may do without.
WITHOUT_JAX = importlib.util.find_spec("jax") is None
collect_ignore_glob = ["*.py"] if WITHOUT_JAX else []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if WITHOUT_JAX:
        terminalreporter.section("oracle")
        terminalreporter.write_line("NOTHING WAS COMPARED: jax is not installed")
