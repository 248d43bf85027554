"""Running Python and the `uopc` command in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path
from typing import Protocol

import pytest

# The helpers beside these tests are imported by their plain names, and so is what
# the benchmarks are made of.
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

Done = subprocess.CompletedProcess[str]


class Run(Protocol):
    """Run something with the environment variables given, and UOPC_* of no one else."""

    def __call__(self, *words: str, status: int = 0, **variables: str) -> Done:
        """Whatever it prints; the test fails if the exit status is another one."""


@pytest.fixture(scope="session")
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache of compiled kernels for all processes of a run."""
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture
def run_command(kernel_cache: Path, tmp_path: Path) -> Run:
    """Run a command line, in a folder of its own."""

    def run(*words: str, status: int = 0, **variables: str) -> Done:
        outer = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("UOPC_", "PYTHONPATH", "PYTHONWARNINGS"))
        }
        env = {**outer, "UOPC_CACHE_DIR": str(kernel_cache), **variables}
        done = subprocess.run(
            words, capture_output=True, text=True, env=env, cwd=tmp_path, check=False
        )
        assert done.returncode == status, f"{done.stdout}\n{done.stderr}"
        return done

    return run


@pytest.fixture
def run_python(run_command: Run) -> Run:
    """Run the text of a program."""

    def run(*words: str, status: int = 0, **variables: str) -> Done:
        (text,) = words
        code = textwrap.dedent(text)
        return run_command(sys.executable, "-c", code, status=status, **variables)

    return run


@pytest.fixture
def run_uopc(run_command: Run) -> Run:
    """Run the installed `uopc` script."""
    script = Path(sysconfig.get_path("scripts"), "uopc")

    def run(*words: str, status: int = 0, **variables: str) -> Done:
        return run_command(str(script), *words, status=status, **variables)

    return run
