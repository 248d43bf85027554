"""The cache's size: what goes, what stays, and the command that shows it."""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uopc.backend_c import CProgram, cache, load, plans, room
from uopc.backend_c.backend import spellings
from uopc.backend_c.emit import UNIT_COST, plan_text
from uopc.backend_c.target import current_target
from uopc.cli import main
from uopc.config import ConfigError, get, overriding
from uopc.kernelize import make_plan
from uopc.runtime import backend_named, new_buffer, realize
from uopc.uop import UOp

pytestmark = pytest.mark.usefixtures("own_cache")

Run = Callable[..., int]

HOUR = 3600.0


def built(number: int) -> Path:
    return cache.build(f"void f(void **p) {{ *(int *)p[0] = {number}; }}\n", 0)


def aged(entry: Path, hours: float) -> Path:
    """An entry as another process left it, some time ago."""
    when = time.time() - hours * HOUR
    for file in entry.parent.glob(f"{entry.stem}*"):
        os.utime(file, (when, when))
    room.in_use.discard(entry.stem)
    return entry


def size(entry: Path) -> int:
    return sum(f.stat().st_size for f in entry.parent.glob(f"{entry.stem}*"))


def test_the_least_recently_used_entries_go(own_cache: Path):
    old = [aged(built(n), 10 - n) for n in range(4)]
    each = size(old[0])
    built(0)  # a hit: it is the most recently used one now
    room.in_use.clear()
    with overriding(UOPC_CACHE_SIZE=each * 4):
        new = built(9)
    left = {entry.name for entry in room.entries(own_cache)}
    # Room for four: some more goes, so that the next one does not have to wait.
    assert left == {old[0].stem, old[3].stem, new.stem}
    assert sum(e.nbytes for e in room.entries(own_cache)) <= 0.8 * each * 4
    assert all(name[:64] in left for name in os.listdir(own_cache))


def test_what_is_in_use_stays(own_cache: Path, run: Run):
    mine = built(1)
    library = load.load(mine)
    for file in own_cache.iterdir():
        os.utime(file, (0, 0))
    recent, old = aged(built(2), 0.0), aged(built(3), 1.0)
    with overriding(UOPC_CACHE_SIZE=1):
        new = built(4)
    left = {entry.name for entry in room.entries(own_cache)}
    assert left == {mine.stem, recent.stem, new.stem}
    assert old.stem not in left
    assert run(library) == 1
    library.close()


def test_what_seems_to_be_used_in_the_future_goes_first(own_cache: Path):
    """The clock was wrong when it was used; it must not stay for that for ever."""
    future, old, source = aged(built(1), -1000.0), aged(built(2), 1.0), "0" * 64
    (own_cache / f"{source}.c").touch()
    os.utime(own_cache / f"{source}.c", (2**33, 2**33))
    assert [e.name for e in room.entries(own_cache)][-1] == old.stem
    assert not any(e.recent or e.compiling for e in room.entries(own_cache))
    with overriding(UOPC_CACHE_SIZE=int(size(old) * 2.6)):
        new = built(3)
    assert [f.exists() for f in (future, old, new)] == [False, True, True]
    left = own_cache / ".tmp-left"
    left.mkdir()
    os.utime(left, (2**33, 2**33))
    room.clear(own_cache)
    assert not left.exists()


def test_what_other_processes_add_is_noticed(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    each = size(built(0))
    monkeypatch.setattr(room, "_seen", {})
    with overriding(UOPC_CACHE_SIZE=each * 40):
        built(1)
        for number in range(100, 160):  # another process
            copy = own_cache / f"{number:064}.so"
            copy.write_bytes(bytes(each))
            os.utime(copy, (0, 0))
        for number in range(2, 6):
            built(number)
    assert sum(e.nbytes for e in room.entries(own_cache)) <= each * 40


def test_a_program_that_runs_survives_that_its_entry_goes(run: Run):
    with load.load(built(1)) as library:
        aged(library.path, 1.0)
        with overriding(UOPC_CACHE_SIZE=1):
            built(2)
        assert not library.path.exists()
        assert run(library) == 1


def test_a_source_that_is_being_compiled_stays(own_cache: Path):
    built(1)
    source = own_cache / f"{'0' * 64}.c"
    source.touch()
    (own_cache / "notes.txt").touch()  # somebody's own
    assert len(room.clear(own_cache)) == 1
    assert {p.name for p in own_cache.iterdir()} == {source.name, "notes.txt"}
    os.utime(source, (0, 0))
    assert [entry.name for entry in room.clear(own_cache)] == ["0" * 64]


def test_the_folder_is_looked_through_when_it_may_be_full(
    monkeypatch: pytest.MonkeyPatch,
):
    looked = []
    entries = room.entries
    monkeypatch.setattr(room, "entries", lambda f: looked.append(f) or entries(f))
    for number in range(5):
        built(number)
    assert len(looked) == 1


@pytest.mark.parametrize(
    ("text", "value"), [("7", 7), ("3k", 3 << 10), ("500M", 500 << 20), ("2 G", None)]
)
def test_sizes(text: str, value: int | None):
    if value is None:
        with (
            pytest.raises(ConfigError, match="500M"),
            overriding(UOPC_CACHE_SIZE=text),
        ):
            pass
        return
    with overriding(UOPC_CACHE_SIZE=text):
        assert get("UOPC_CACHE_SIZE") == value


def test_the_entry_may_go_before_it_is_opened(monkeypatch: pytest.MonkeyPatch):
    """Another process makes room between finding the object and opening it."""
    x = new_buffer(np.arange(3, dtype=np.float32))
    backend = backend_named("c")
    plan, _ = make_plan([x * 2.0], None, backend.supports, backend.name)
    current_target()  # so that its own question is answered
    build, removed, before = cache.build, [], cache.stats.misses

    def unlucky(units: str, opt: int, **more: Any) -> Path:
        made = build(units, opt, **more)
        if not removed:
            removed.append(made)
            made.unlink()
        return made

    monkeypatch.setattr("uopc.backend_c.cache.build", unlucky)
    assert CProgram(plan, spellings())
    assert removed
    assert cache.stats.misses - before == 2


# The command


def test_the_command_shows_and_clears(
    own_cache: Path, capsys: pytest.CaptureFixture[str]
):
    entries = [built(1), aged(built(2), 48.0)]
    plans.remember("1" * 64, entries[0])
    nbytes = sum(map(size, entries)) + size(own_cache / ("1" * 64))
    assert main(["cache"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = dict(re.split(r" {2,}", line, maxsplit=1) for line in lines)
    day = time.strftime("%Y-%m-%d", time.localtime(time.time() - 48 * HOUR))
    assert rows == {
        "folder": str(own_cache),
        "entries": "3",
        "bytes": f"{nbytes} of at most {1 << 30}",
        "oldest": rows["oldest"],
    }
    assert rows["oldest"].startswith(f"last used {day}")
    assert main(["cache", "--clear"]) == 0
    assert (
        capsys.readouterr().out
        == f"removed 3 entries, {nbytes} bytes, from {own_cache}\n"
    )
    assert not list(own_cache.iterdir())


# Units


def graphs(count: int) -> list[UOp]:
    """Graphs of one kernel each, no two of one shape; some call a helper."""
    leaves = [new_buffer(np.arange(n + 1, dtype=np.float32)) for n in range(count)]
    return [(x * 2.0 % 3.0).exp2() + x for x in leaves]


def test_a_large_plan_is_compiled_in_units_of_equal_cost(own_cache: Path):
    roots = graphs(100)
    backend = backend_named("c")
    plan, _ = make_plan(roots, None, backend.supports, backend.name)
    text = plan_text(plan.kernels, spellings())
    cost = [f.cost for f in text.functions]
    units = text.units()
    assert isinstance(units, dict)
    parts = [unit for name, unit in units.items() if name != "entry"]
    assert len(parts) > 2
    defined = [re.findall(r"^void (\w+)\(.*\{$", part, re.M) for part in parts]
    assert [name for names in defined for name in names] == [
        k.name for k in plan.kernels
    ]
    by_name = dict(zip([k.name for k in plan.kernels], cost, strict=True))
    costs = [sum(by_name[name] for name in part) for part in defined]
    for filled in costs[:-1]:  # each as soon as it is full
        assert UNIT_COST <= filled < UNIT_COST + max(cost)
    assert costs[-1] < UNIT_COST + max(cost)
    cache.stats.reset()
    for x, got in zip(range(100), realize(roots, None, backend), strict=True):
        value = np.arange(x + 1, dtype=np.float32)
        np.testing.assert_allclose(got, np.exp2(value * 2 % 3) + value, rtol=1e-5)
    assert cache.stats.compiler_runs == len(units) + 1
    assert len(list(own_cache.glob("*.c"))) == len(units)


def test_a_small_plan_is_one_file():
    backend = backend_named("c")
    plan, _ = make_plan(graphs(3), None, backend.supports, backend.name)
    text = plan_text(plan.kernels, spellings())
    assert text.units() == text.source
