"""The machine as schedules see it."""

import platform
from pathlib import Path

import numpy as np
import pytest

from uopc.backend_c import cache, cpu, plans, target
from uopc.backend_c.toolchain import find_compiler
from uopc.config import overriding
from uopc.dtype import f32, f64
from uopc.kernelize import make_plan
from uopc.runtime import backend_named, new_buffer
from uopc.schedule import PLAIN

X86 = {
    "x86-64-v4": (64, 32, True),
    "x86-64-v3": (32, 16, True),
    "sandybridge": (32, 16, False),
    "x86-64": (16, 16, False),
}
KNOWN = X86 if platform.machine() == "x86_64" else {}


@pytest.fixture(autouse=True)
def asked_anew(own_cache: Path) -> None:
    target._asked.cache_clear()


@pytest.mark.parametrize("name", KNOWN)
def test_the_compiler_says_for_what_it_compiles(name: str):
    with overriding(UOPC_CC=f"{find_compiler().argv[0]} -march={name}"):
        found = target.current_target()
    assert (found.vector_bytes, found.registers, found.fma) == KNOWN[name]
    assert found.lanes(f32) == 2 * found.lanes(f64) == found.vector_bytes // 4


def test_this_processor():
    found = target.current_target()
    has = cpu.features()
    widest = 64 if "avx512f" in has else 32 if "avx" in has else 16
    assert found.vector_bytes == widest
    assert found.fma == ("fma" in has or platform.machine() == "aarch64")
    assert found.cores == cpu.cores()


def test_the_compiler_is_asked_once():
    first = target.current_target()
    assert target.current_target() == first
    assert cache.stats.compiler_runs == 1
    # Nor does another process start it again.
    target._asked.cache_clear()
    assert target.current_target() == first
    assert cache.stats.compiler_runs == 1


@pytest.mark.parametrize("command", ["no-such-compiler", "false"])
def test_without_a_compiler_there_is_a_plain_one(command: str):
    with overriding(UOPC_CC=command):
        found = target.current_target()
    assert (found.vector_bytes, found.registers, found.fma) == (16, 16, False)


def caches_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    monkeypatch.setattr(cpu, "CACHES", folder)
    return cpu.caches.__wrapped__()


def test_sizes_of_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rows = ["1 Data 48K", "1 Instruction 32K", "2 Unified 2M", "3 Unified ?"]
    for i, row in enumerate(rows):
        folder = tmp_path / f"index{i}"
        folder.mkdir()
        for name, text in zip(("level", "type", "size"), row.split(), strict=True):
            (folder / name).write_text(f"{text}\n")
    (tmp_path / "index4").mkdir()
    found = caches_at(tmp_path, monkeypatch)
    assert found == {1: 48 << 10, 2: 2 << 20}
    monkeypatch.setattr(cpu, "caches", lambda: found)
    made = target.current_target()
    assert (made.l1, made.l2, made.l3) == (48 << 10, 2 << 20, PLAIN.l3)


def test_a_machine_that_tells_no_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert caches_at(tmp_path / "none", monkeypatch) == {}


def test_programs_are_for_one_machine(monkeypatch: pytest.MonkeyPatch):
    """What a schedule depends on is part of a plan's key."""
    monkeypatch.setattr(plans, "code_fingerprint", lambda: "this code")
    backend = backend_named("c")
    plan, _ = make_plan(
        [new_buffer(np.ones(2, np.float32)) + 1.0], None, backend.supports, "c"
    )
    keys = []

    def note() -> None:
        with overriding(UOPC_CHECK=1):
            keys.append(plans.plan_key(plan, 1))

    note()
    note()
    monkeypatch.setattr(cpu, "cores", lambda: 77)
    note()
    monkeypatch.setattr(cpu, "caches", lambda: {1: 1 << 10})
    note()
    monkeypatch.setattr(cpu, "features", lambda: ("few",))
    note()
    assert keys[0] is not None
    assert keys[0] == keys[1]
    assert len(set(keys)) == 4
