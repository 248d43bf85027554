"""Folders of one compilation, which must not outlive it."""

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from uopc.runtime.interrupts import interrupts_held


@contextlib.contextmanager
def scratch_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A new folder, in the system's temporary one by default; removed at the end.

    Not a `tempfile.TemporaryDirectory`, which is also removed when a process ends that
    was forked meanwhile, under the compiler that this one runs.
    """
    made = ""
    try:
        with interrupts_held():
            made = tempfile.mkdtemp(prefix=prefix, dir=parent)
        yield Path(made)
    finally:
        if made:
            surely(lambda: shutil.rmtree(made, ignore_errors=True))


def surely(clean_up: Callable[[], object]) -> None:
    """Clean up, also if Ctrl-C comes just before; it is raised afterwards."""
    try:
        with interrupts_held():
            clean_up()
    except KeyboardInterrupt:
        clean_up()
        raise
