"""`uopc tune`: run a script, then find better schedules for what took the time."""

from __future__ import annotations

import argparse
import math
import runpy
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from uopc.backend_c import tuned
from uopc.backend_c.backend import spellings
from uopc.backend_c.fingerprint import code_fingerprint
from uopc.backend_c.progress import Progress
from uopc.backend_c.target import current_target
from uopc.backend_c.toolchain import CompilerNotFoundError, find_compiler
from uopc.backend_c.tuning.profile import Nest, nests_of_most_time
from uopc.backend_c.tuning.search import Found, Search
from uopc.backend_c.watch import Watch, watching
from uopc.cli import CommandError
from uopc.cli.table import format_table
from uopc.config import get, overriding
from uopc.schedule.text import to_text

SECONDS = 120.0
INTERRUPTED = 130


def configure(parser: argparse.ArgumentParser) -> None:
    """The script, what it gets, and how long to search."""
    parser.add_argument(
        "--seconds", metavar="S", type=_seconds, default=SECONDS,
        help=f"how long to search when the script has run (else {SECONDS:g})",
    )  # fmt: skip
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="print what is measured on stderr"
    )
    parser.add_argument("script", metavar="SCRIPT", help="a Python program")
    parser.add_argument(
        "args", metavar="ARGS", nargs=argparse.REMAINDER, help="what it is called with"
    )


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return value


@dataclass(frozen=True)
class _Row:
    """A nest and what was found for it; None if there was no time left."""

    nest: Nest
    found: Found | None


def run_tune(args: argparse.Namespace) -> int:
    """Run the script, search, keep the winners, and print what they bring."""
    _require_possible()
    _require_known_code()
    with watching() as watch:
        _run_script(Path(args.script), args.args)
    _require_known_code()
    if not any(w.runs for w in watch.programs):
        raise CommandError(f"{args.script} ran nothing on the C backend")
    return _tune(watch, args.seconds, args.verbose)


def _require_possible() -> None:
    if not get("UOPC_OPT"):
        raise CommandError("UOPC_OPT=0: without schedules there is nothing to tune")
    try:
        find_compiler()
    except CompilerNotFoundError as error:
        raise CommandError(str(error)) from error


def _require_known_code() -> None:
    if code_fingerprint() is None:
        raise CommandError(
            "what is found now could not be found again: the code of a plugin has no "
            "version or file, or a file of uopc is younger than this process"
        )


def _run_script(file: Path, words: Sequence[str]) -> None:
    """Run a program as Python would."""
    if not file.is_file():
        raise CommandError(f"cannot read {file}: there is no such file")
    try:
        with _as_main(file, words):
            runpy.run_path(str(file), run_name="__main__")
    except SystemExit as stop:
        if stop.code not in (None, 0):
            raise CommandError(f"{file} ended with {stop.code!r}") from stop
    except Exception as error:
        traceback.print_exc()
        raise CommandError(f"{file} raised {type(error).__name__}") from error


@contextmanager
def _as_main(file: Path, words: Sequence[str]) -> Iterator[None]:
    before = sys.argv, sys.path
    sys.argv = [str(file), *words]
    sys.path = [str(file.parent.absolute()), *sys.path]
    try:
        yield
    finally:
        sys.argv, sys.path = before


def _tune(watch: Watch, seconds: float, verbose: bool) -> int:
    """Search nest by nest; Ctrl-C ends it, and what was found till then is kept."""
    rows: list[_Row] = []
    status = 0
    start = time.monotonic()
    progress = Progress(math.ceil(seconds), "tuning", "s")

    def tell(line: str) -> None:
        if verbose:
            print(line, file=sys.stderr)
        else:
            progress.show(min(int(time.monotonic() - start), math.ceil(seconds)))

    try:
        nests = nests_of_most_time(watch)
        for i, nest in enumerate(nests):
            tell(f"{nest.name}: {nest.seconds * 1e6:.1f} us, {nest.current}")
            rest = sum(n.total for n in nests[i:])
            now = time.monotonic()
            left = start + seconds - now
            share = left * max(nest.total / max(rest, 1e-12), 1 / (len(nests) - i))
            found = _search(nest, now + share, tell) if left > 0 else None
            rows.append(_Row(nest, found))
    except KeyboardInterrupt:
        status = INTERRUPTED
    finally:
        progress.close()
    print(_table(rows))
    return status


def _search(nest: Nest, deadline: float, tell: Callable[[str], None]) -> Found:
    """Search, and keep the winner, if there is one."""
    with overriding(UOPC_OPT=nest.opt):
        target = current_target()
        search = Search(
            nest.plain,
            nest.current,
            target,
            spellings(),
            nest.opt,
            lambda line: tell(f"{nest.name}: {line}"),
        )
        found = search.run(deadline)
        if found.winner is not None:
            text = to_text(found.winner.steps)
            if text is None or not tuned.remember(nest.plain, target, text):
                raise CommandError("the cache takes no files: see `uopc doctor`")
    return found


def _table(rows: Sequence[_Row]) -> str:
    """A row for each nest, and the sum of all their runs."""
    lines = [("nest", "runs", "tried", "before us", "after us", "ratio", "schedule")]
    before = after = 0.0
    for nest, found in ((row.nest, row.found) for row in rows):
        if found is None:
            line = "", "", "", "", "there was no time"
            lines.append((nest.name, str(nest.runs), *line))
            continue
        before += nest.runs * found.before
        after += nest.runs * found.after
        won = "as it was" if found.winner is None else str(found.winner)
        lines.append((
            nest.name,
            str(nest.runs),
            str(found.tried),
            f"{found.before * 1e6:.1f}",
            f"{found.after * 1e6:.1f}",
            f"{found.after / found.before:.2f}",
            won,
        ))  # fmt: skip
    total = f"all of these runs: {before * 1e3:.3f} ms before, {after * 1e3:.3f} after"
    return f"{format_table(lines)}\n\n{total}"
