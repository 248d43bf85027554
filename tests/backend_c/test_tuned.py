"""Schedules that were found by measuring: kept, found, and believed only if whole."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uopc.backend_c import CProgram, cache, plans, room, tuned
from uopc.backend_c.backend import spellings
from uopc.backend_c.emit import plan_text
from uopc.backend_c.target import current_target
from uopc.config import overriding
from uopc.kernelize import Plan, make_plan
from uopc.runtime import backend_named, lower_nest, nests_of, new_buffer
from uopc.schedule import Simplify, Split, Step, Vectorize
from uopc.schedule.text import to_text
from uopc.uop import Ops, UOp

pytestmark = pytest.mark.usefixtures("own_cache", "known_code")

SIZE = 1000
OTHERWISE = (Split(0, 10, 5), Vectorize(5, 2, 6), Simplify())


@pytest.fixture
def known_code(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Entries are kept, whatever the checks and the age of the files."""
    for module in (plans, tuned):
        monkeypatch.setattr(module, "code_fingerprint", lambda: "this code")
    with overriding(UOPC_CHECK=1):
        yield


def planned(factor: float = 2.0) -> Plan:
    backend = backend_named("c")
    leaf = new_buffer(np.arange(SIZE, dtype=np.float32))
    plan, _ = make_plan([leaf * factor], None, backend.supports, backend.name)
    return plan


def plain(plan: Plan) -> UOp:
    lowered = lower_nest(nests_of(plan.kernels)[0], "any")
    assert lowered is not None
    assert lowered.plain is not None
    return lowered.plain


def keep(plan: Plan, steps: tuple[Step, ...] = OTHERWISE) -> None:
    text = to_text(steps)
    assert text is not None
    assert tuned.remember(plain(plan), current_target(), text)


def schedule(plan: Plan) -> str:
    """The comment above its only kernel."""
    text = plan_text(plan.kernels, spellings()).source
    return text[text.index("// ") :].partition("\n")[0]


def ran(plan: Plan) -> Any:
    arrays = [np.zeros(b.size, b.dtype.numpy) for b in plan.buffers]
    arrays[0][:] = np.arange(SIZE)
    CProgram(plan, spellings())(arrays)
    return arrays[plan.outputs[0]]


def test_a_winner_is_used() -> None:
    plan = planned()
    before = schedule(plan)
    assert "split" not in before
    keep(plan)
    assert schedule(plan) == "// split(ridx0, 10), vectorize(ridx5, 2), simplify"
    np.testing.assert_array_equal(ran(plan), 2 * np.arange(SIZE))
    assert schedule(planned(3.0)).partition("(")[0] == before.partition("(")[0]
    with overriding(UOPC_OPT=2):
        assert schedule(plan) == before
    with overriding(UOPC_OPT=0):
        assert "//" not in plan_text(plan.kernels, spellings()).source


def test_a_plan_that_was_found_before_is_made_again() -> None:
    plan = planned()
    ran(plan)
    ran(plan)
    assert (cache.stats.plan_hits, cache.stats.kernels) == (1, 1)
    keep(plan)
    np.testing.assert_array_equal(ran(plan), 2 * np.arange(SIZE))
    assert (cache.stats.plan_hits, cache.stats.kernels) == (1, 2)
    ran(plan)
    assert (cache.stats.plan_hits, cache.stats.kernels) == (2, 2)
    with overriding(UOPC_OPT=2):  # by estimates alone
        ran(plan)
    assert (cache.stats.plan_hits, cache.stats.kernels) == (2, 3)


def test_every_new_entry_changes_the_key() -> None:
    plan = planned()
    keys = [plans.plan_key(plan, 1)]
    assert tuned.stamp() == ""
    for factor, steps in ((2.0, OTHERWISE), (3.0, OTHERWISE), (3.0, (Simplify(),))):
        keep(planned(factor), steps)
        keys.append(plans.plan_key(plan, 1))
    assert len(set(keys)) == len(keys)
    with overriding(UOPC_OPT=2):
        assert plans.plan_key(plan, 1) == keys[0]


def test_what_an_entry_is_found_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program whatever its name, the code, the compiler, the machine's sizes."""
    plan = planned()
    keep(plan)
    sink, target = plain(plan), current_target()
    found = tuned.known_schedule(sink, target)
    assert found == OTHERWISE
    other = UOp(Ops.SINK, sink.src, "other")
    assert tuned.known_schedule(other, target) == found
    one = target.__class__(**{**vars(target), "cores": target.cores + 1})
    assert tuned.known_schedule(sink, one) == found  # or results would depend on it
    small = target.__class__(**{**vars(target), "l2": 1234})
    assert tuned.known_schedule(sink, small) is None
    assert tuned.known_schedule(plain(planned(5.0)), target) is None
    with monkeypatch.context() as patch:
        patch.setenv("UOPC_CC", "gcc -g0")
        assert tuned.known_schedule(sink, target) is None
    with monkeypatch.context() as patch:
        patch.setenv("UOPC_CC", "/no/such/compiler")
        assert tuned.known_schedule(sink, target) is None
    for code in ("other code", None):
        monkeypatch.setattr(tuned, "code_fingerprint", lambda code=code: code)
        assert tuned.known_schedule(sink, target) is None
    assert not tuned.remember(sink, target, "{}")


def entry_and_stamp(folder: Path) -> tuple[Path, Path]:
    files = set(folder.glob("*.tuned"))
    stamp = folder / f"{cache.digest(['stamp'])}.tuned"
    (entry,) = files - {stamp}
    assert stamp in files
    return entry, stamp


@pytest.mark.parametrize(
    "damage",
    [
        "cut", "empty", "garbage", "another's", "writable", "link", "newer", "no steps",
        "impossible",
    ],
)  # fmt: skip
def test_what_is_not_whole_is_ignored(damage: str, own_cache: Path) -> None:
    plan, other = planned(), planned(3.0)
    before = schedule(plan)
    keep(other, (Split(0, 20, 5),))
    (foreign, _) = entry_and_stamp(own_cache)
    theirs = foreign.read_bytes()
    foreign.unlink()
    keep(plan)
    entry, _ = entry_and_stamp(own_cache)
    good = entry.read_bytes()
    assert schedule(plan) != before
    texts = {
        "newer": json.dumps({"version": 99, "steps": [], "more": True}),
        "no steps": json.dumps({"version": 1, "steps": [["NoStep", {}]]}),
        "impossible": to_text((Split(0, 0, 5),)),
    }
    data = {
        "cut": good[:100],
        "empty": b"",
        "garbage": os.urandom(len(good)),
        "another's": theirs,
    }
    if text := texts.get(damage):
        assert tuned.remember(plain(plan), current_target(), text)
    elif damage == "writable":
        entry.chmod(0o622)
    elif damage == "link":
        entry.rename(own_cache / "elsewhere")
        entry.symlink_to(own_cache / "elsewhere")
    else:
        entry.write_bytes(data[damage])
    assert schedule(plan) == before
    np.testing.assert_array_equal(ran(plan), 2 * np.arange(SIZE))


def test_without_a_stamp_nothing_counts(own_cache: Path) -> None:
    """Or a plan from before the entry would be found, and another one not."""
    plan = planned()
    before, key = schedule(plan), plans.plan_key(plan, 1)
    keep(plan)
    entry, stamp = entry_and_stamp(own_cache)
    stamp.unlink()
    assert schedule(plan) == before
    assert plans.plan_key(plan, 1) == key
    assert entry.exists()


def test_the_cache_counts_and_clears_them(own_cache: Path) -> None:
    keep(planned())
    entry, stamp = entry_and_stamp(own_cache)
    names = {e.name: e for e in room.entries(own_cache)}
    assert {entry.stem, stamp.stem} <= set(names)
    assert not names[entry.stem].compiling
    room.clear(own_cache)
    assert not list(own_cache.glob("*.tuned"))
