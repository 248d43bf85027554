"""The pool of threads under gcc's thread sanitizer."""

import os
import subprocess
from pathlib import Path

import pytest

from uopc.backend_c import pool

DRIVER = Path(__file__).with_name("pool_driver.c")
FLAGS = ("-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=thread")


@pytest.fixture(scope="module", params=["futex", "portable"])
def driver(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The driver and the pool as a program, by the way in which threads sleep."""
    program = tmp_path_factory.mktemp("sanitize") / "driver"
    defined = ["-DUOPC_PORTABLE"] if request.param == "portable" else []
    command = ["gcc", *FLAGS, *defined, DRIVER, pool.SOURCE, "-o", program, "-pthread"]
    subprocess.run(command, check=True)
    return program


def test_no_race(driver: Path):
    # Its own threads do not survive a fork, which the pool's are not meant to either.
    environment = {**os.environ, "TSAN_OPTIONS": "die_after_fork=0 halt_on_error=1"}
    done = subprocess.run(
        [driver], env=environment, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
