"""Units are compiled while the kernels of later ones are still lowered."""

from __future__ import annotations

import itertools
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from processes import gone

from uopc.backend_c import CompileError, ahead, cache, cpu, emit
from uopc.backend_c.backend import spellings
from uopc.config import overriding
from uopc.kernelize import Plan, make_plan
from uopc.runtime import backend_named, new_buffer, realize
from uopc.uop import UOp

GCC = shutil.which("gcc") or ""

_sizes = itertools.count(3)

Fake = Callable[..., Path]
Look = Callable[[str], None]


@pytest.fixture(autouse=True)
def small_units(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A unit for every one or two kernels, and a core to compile them on."""
    monkeypatch.setattr(emit, "UNIT_COST", 400)
    monkeypatch.setattr(cpu, "cores", lambda: 2)
    with overriding(UOPC_CHECK=1):
        yield


@pytest.fixture
def lowering(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Look]]:
    """Functions that are called with the name of each kernel before it is lowered."""
    looking: list[Look] = []
    lower = emit.lower_nest

    def watched(nest: Any, name: str, *more: Any) -> Any:
        for look in looking:
            look(name)
        return lower(nest, name, *more)

    monkeypatch.setattr(emit, "lower_nest", watched)
    yield looking


def graphs() -> list[UOp]:
    """Six graphs of one kernel each, no two of one shape, and none that was made."""
    sizes = [next(_sizes) for _ in range(6)]
    return [new_buffer(np.arange(n, dtype=np.float32)).sqrt() for n in sizes]


def computed(roots: list[UOp]) -> list[Any]:
    return realize(roots, None, backend_named("c"))


def correct(results: list[Any]) -> None:
    for got in results:
        expected = np.sqrt(np.arange(len(got), dtype=np.float32))
        np.testing.assert_array_equal(got, expected)


def planned(roots: list[UOp]) -> Plan:
    backend = backend_named("c")
    return make_plan(roots, None, backend.supports, backend.name)[0]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_compilers_run_before_the_last_kernel_is_lowered(lowering: list[Look]):
    runs: list[int] = []
    lowering.append(lambda name: runs.append(cache.stats.compiler_runs))
    roots = graphs()
    correct(computed(roots))
    assert runs[0] < runs[-1]
    units = emit.plan_text(planned(roots).kernels, spellings()).units()
    assert cache.stats.compiler_runs == runs[0] + len(units) + 1
    assert not list(cache.cache_dir().glob(".tmp-*"))


def test_a_plan_of_one_file_waits_for_all_of_it(
    lowering: list[Look], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(emit, "UNIT_COST", 100_000)
    runs: list[int] = []
    lowering.append(lambda name: runs.append(cache.stats.compiler_runs))
    correct(computed(graphs()))
    assert cache.stats.compiler_runs == runs[-1] + 1 == runs[0] + 1


def test_units_are_those_of_the_whole_plan():
    """Which are complete when depends on the plan, not on when somebody looks."""
    kernels = planned(graphs()).kernels
    seen: list[dict[str, str]] = []
    text = emit.plan_text(kernels, spellings(), lambda u: seen.append(dict(u)))
    told = {name: unit for units in seen for name, unit in units.items()}
    units = text.units()
    assert isinstance(units, dict)
    assert len(seen) == len(text.functions)
    assert told.items() <= units.items()
    # The last functions and the entry are not complete before all is printed.
    assert set(units) - set(told) == {f"part{len(told)}", "entry"}


@pytest.mark.parametrize("cores", [1, 2, 8])
def test_the_entry_is_the_same_however_many_compilers_run(
    cores: int, own_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    roots = graphs()
    units = emit.plan_text(planned(roots).kernels, spellings()).units()
    apart = cache.build(units, 1)
    shutil.rmtree(own_cache)
    monkeypatch.setattr(cpu, "cores", lambda: cores)
    correct(computed(roots))
    (made,) = own_cache.glob("*.so")
    assert made.name == apart.name


def test_an_interrupt_between_two_kernels_leaves_no_compiler(
    lowering: list[Look], fake: Fake, own_cache: Path
):
    program = fake(
        f'case "$*" in *part*) ;; *) exec {GCC} "$@";; esac\n'
        'sleep 60 & echo $! > "$0.new"; mv "$0.new" "$0.pid"; wait'
    )
    pid = program.with_name(f"{program.name}.pid")

    def interrupt(name: str) -> None:
        names.append(name)
        if len(names) == 6:
            until(pid.exists)
            raise KeyboardInterrupt

    names: list[str] = []
    lowering.append(interrupt)
    with pytest.raises(KeyboardInterrupt):
        computed(graphs())
    child = int(pid.read_text())
    until(lambda: gone(child))
    assert not [p for p in own_cache.iterdir() if "part" in p.name or p.is_dir()]


def test_an_error_in_an_early_unit_is_reported_as_in_any(
    lowering: list[Look], fake: Fake, own_cache: Path
):
    fake(f'case "$*" in *part0.c*) echo no such luck; exit 3;; esac; exec {GCC} "$@"')
    names: list[str] = []
    lowering.append(names.append)
    with pytest.raises(CompileError, match="no such luck") as caught:
        computed(graphs())
    assert len(names) == 6  # all were lowered
    error = caught.value
    assert error.status == 3
    assert error.source.parent == own_cache
    assert error.source.name.endswith(".part0.c")
    assert "by who spelled them" in error.__notes__[0]
    assert not list(own_cache.glob(".tmp-*"))


def test_what_fails_ahead_is_tried_again(lowering: list[Look], fake: Fake):
    """A compiler that was killed, for want of memory say, was one too many."""
    fake(f'[ -e "$0.been" ] || {{ : > "$0.been"; kill -KILL $$; }}; exec {GCC} "$@"')
    lowering.append(lambda name: time.sleep(0.05))
    correct(computed(graphs()))


def test_no_folder_for_it(monkeypatch: pytest.MonkeyPatch):
    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ahead, "scratch_folder", full)
    correct(computed(graphs()))


def test_where_every_pass_runs_nothing_is_compiled_twice():
    roots = graphs()
    correct(computed(roots))
    cache.stats.reset()
    with overriding(UOPC_CHECK=2):
        backend_named("c").compile(planned(roots))
    assert (cache.stats.kernels, cache.stats.compiler_runs) == (6, 0)


def test_other_units_than_those_begun_are_compiled_anew():
    with ahead.HeadStart(1) as begun:
        begun.add({"part0": "int a;\n"})
        assert begun.objects({"part0": "int b;\n", "entry": "int c;\n"}) is None
        made = begun.objects({"part0": "int a;\n", "entry": "int c;\n"})
        assert made is not None
        assert [object.name for object in made] == ["part0.o", "entry.o"]
        assert all(object.is_file() for object in made)
