"""The disk cache: what an entry is, its key, damage and interruptions."""

import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from uopc.backend_c import cache, cpu, load, plans, toolchain

pytestmark = pytest.mark.usefixtures("own_cache")

SOURCE = "void f(void **p) { ((int *)p[0])[0] += 7; }\n"
UNITS = {
    "one": "int helper(int x) { return 2 * x; }\n",
    "two": "int helper(int);\nvoid f(void **p) { *(int *)p[0] = helper(21); }\n",
}

Run = Callable[..., int]
Script = Callable[[str], list[str]]
Environment = Callable[..., dict[str, str]]


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def counts() -> tuple[int, int, int, int]:
    found = cache.stats
    return found.compiler_runs, found.hits, found.misses, found.damaged


# Building


def test_an_entry_is_source_object_and_checksum(own_cache: Path, call: Run):
    made = cache.build(SOURCE, 1)
    stem = made.stem
    assert names(own_cache) == [f"{stem}.c", f"{stem}.so", f"{stem}.so.sha256"]
    assert made.with_suffix(".c").read_text() == SOURCE
    assert call(made, 35) == 42
    subprocess.run(["sha256sum", "-c", f"{stem}.so.sha256"], cwd=own_cache, check=True)


def test_units_are_linked_into_one_object(own_cache: Path, call: Run):
    made = cache.build(UNITS, 1)
    assert call(made) == 42
    stem = made.stem
    assert names(own_cache) == sorted(
        f"{stem}.{end}" for end in ("one.c", "two.c", "so", "so.sha256")
    )
    assert counts() == (3, 0, 1, 0)
    assert cache.build(UNITS, 1) == made
    assert counts() == (3, 1, 1, 0)


@pytest.mark.parametrize("unit", ["", "../up", "a b", "a.b", "x" * 129])
def test_a_unit_name_cannot_leave_the_folder(unit: str):
    with pytest.raises(ValueError, match="unit name"):
        cache.build({unit: SOURCE}, 1)


def test_nothing_to_compile():
    with pytest.raises(ValueError, match="at least one translation unit"):
        cache.build({}, 1)


def test_a_warm_hit_starts_no_process(monkeypatch: pytest.MonkeyPatch):
    made = cache.build(SOURCE, 1)
    assert counts() == (1, 0, 1, 0)

    def forbidden(*words: object, **options: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", forbidden)
    monkeypatch.setattr(os, "system", forbidden)
    toolchain._find.cache_clear()
    cpu._described.cache_clear()
    assert cache.build(SOURCE, 1) == made
    assert counts() == (1, 1, 1, 0)


def test_the_key_covers_all_that_matters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    program = tmp_path / "cc"
    program.write_text('#!/bin/sh\nexec gcc "$@"\n')
    program.chmod(0o755)
    quoted = shlex.quote(str(program))
    monkeypatch.setenv("UOPC_CC", quoted)
    made = [cache.build(SOURCE, 1)]
    made.append(cache.build(SOURCE + "\n", 1))
    made.append(cache.build({"a": SOURCE}, 1))
    made.append(cache.build(SOURCE, 0))
    os.utime(program, ns=(1, 1))
    made.append(cache.build(SOURCE, 1))
    program.write_text('#!/bin/sh\nexec  gcc "$@"\n')
    os.utime(program, ns=(1, 1))
    made.append(cache.build(SOURCE, 1))
    monkeypatch.setenv("UOPC_CC", f"{quoted} -g0")
    made.append(cache.build(SOURCE, 1))
    # As with ccache, a later word may name the compiler that matters.
    other = program.with_name("other")
    shutil.copy(program, other)
    monkeypatch.setenv("UOPC_CC", f"env {shlex.quote(str(other))}")
    made.append(cache.build(SOURCE, 1))
    os.utime(other, ns=(2, 2))
    made.append(cache.build(SOURCE, 1))
    monkeypatch.setattr(cache, "ABI_VERSION", cache.ABI_VERSION + 1)
    made.append(cache.build(SOURCE, 1))
    assert len(set(made)) == len(made) == cache.stats.compiler_runs


def test_two_processors_have_two_entries(monkeypatch: pytest.MonkeyPatch):
    found = []
    for present in (("avx2", "fma"), ("avx2",), ("avx2", "fma")):
        monkeypatch.setattr(cpu, "features", lambda present=present: present)
        found.append((cache.build(SOURCE, 1), cache.target(1)))
    assert found[0] == found[2]
    assert found[0][0] != found[1][0]
    assert found[0][1] != found[1][1]
    assert counts() == (2, 1, 2, 0)


def test_texts_do_not_run_into_each_other():
    assert cache.digest(["ab", "c"]) != cache.digest(["a", "bc"])
    assert cache.digest(["a", ""]) != cache.digest(["a"])


# Damage


@pytest.mark.parametrize("damage", ["cut", "empty", "garbage", "one bit", "longer"])
def test_a_damaged_object_is_rebuilt_before_it_is_opened(damage: str, call: Run):
    made = cache.build(SOURCE, 1)
    good = made.read_bytes()
    middle = len(good) // 2
    flipped = bytes([good[middle] ^ 1])
    made.write_bytes(
        {
            "cut": good[:middle],
            "empty": b"",
            "garbage": os.urandom(len(good)),
            "one bit": good[:middle] + flipped + good[middle + 1 :],
            "longer": good + b"\0",
        }[damage]
    )
    assert not cache.intact(made)
    assert cache.build(SOURCE, 1) == made
    assert cache.intact(made)
    assert counts() == (2, 0, 2, 1)
    assert call(made, 1) == 8


@pytest.mark.parametrize("kind", ["machine", "class", "no ELF"])
def test_an_object_for_another_machine_is_not_opened(kind: str, call: Run):
    """Its checksum is right: only its head tells."""
    made = cache.build(SOURCE, 1)
    data = bytearray(made.read_bytes())
    data[{"machine": 18, "class": 4, "no ELF": 0}[kind]] ^= 0x5
    made.write_bytes(data)
    line = f"{hashlib.sha256(data).hexdigest()}  {made.name}\n"
    made.with_name(f"{made.name}.sha256").write_text(line)
    assert not cache.intact(made)
    assert cache.build(SOURCE, 1) == made
    assert counts() == (2, 0, 2, 1)
    assert call(made, 1) == 8


def test_an_object_that_others_own_or_may_write_is_not_opened(
    monkeypatch: pytest.MonkeyPatch,
):
    made = cache.build(SOURCE, 1)
    made.chmod(0o722)
    assert not cache.intact(made)
    assert cache.build(SOURCE, 1) == made
    assert cache.intact(made)
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    assert not cache.intact(made)


@pytest.mark.parametrize("text", [None, "", "0" * 64, "not hexadecimal\n", "\0\xff"])
def test_a_lost_or_wrong_checksum_is_a_miss(text: str | None):
    made = cache.build(SOURCE, 1)
    checksum = made.with_name(f"{made.name}.sha256")
    if text is None:
        checksum.unlink()
    else:
        checksum.write_text(text, encoding="latin-1")
    cache.build(SOURCE, 1)
    assert cache.stats.compiler_runs == 2
    assert cache.intact(made)


@pytest.mark.parametrize("end", ["so", "so.sha256"])
@pytest.mark.parametrize("kind", ["pipe", "link", "endless"])
def test_what_is_no_file_of_the_users_own_is_not_read(
    end: str, kind: str, tmp_path: Path, call: Run
):
    """A pipe would keep its reader waiting, a link may lead to where others write."""
    made = cache.build(SOURCE, 1)
    file = made.with_name(f"{made.stem}.{end}")
    if kind == "endless":
        os.truncate(file, 1 << 40 if end == "so.sha256" else 1 << 20)
    else:
        file.rename(tmp_path / "elsewhere")
        if kind == "pipe":
            os.mkfifo(file, 0o600)
        else:
            file.symlink_to(tmp_path / "elsewhere")
    assert not cache.intact(made)
    assert cache.build(SOURCE, 1) == made
    assert counts() == (2, 0, 2, 1)
    assert call(made, 1) == 8


def test_a_record_that_is_a_pipe_is_not_read(own_cache: Path):
    own_cache.mkdir(mode=0o700)
    os.mkfifo(own_cache / f"{'1' * 64}.plan", 0o600)
    assert plans.find("1" * 64) is None


def test_one_entry_under_the_name_of_another_is_not_opened(call: Run):
    """With its checksum, so that both are whole."""
    made = cache.build(SOURCE, 1)
    other = cache.build(SOURCE.replace("7", "8"), 1)
    for end in ("so", "so.sha256"):
        shutil.copy(other.with_suffix(f".{end}"), made.with_suffix(f".{end}"))
    assert cache.build(SOURCE, 1) == made
    assert call(made, 1) == 8


def test_a_folder_in_the_place_of_an_entry(call: Run):
    made = cache.build(SOURCE, 1)
    made.unlink()
    made.mkdir()
    with pytest.warns(RuntimeWarning, match="Is a directory") as caught:
        again = cache.build(SOURCE, 1)
    assert len(caught) == 1
    assert again.parent != made.parent
    assert call(again, 1) == 8


def test_the_cache_may_be_cleared_under_the_compiler(
    tmp_path: Path, fake: Callable[..., Path], own_cache: Path, call: Run
):
    """An entry that was there, damaged, is not known as one that is being compiled."""
    fake(
        f'[ -e "$0.ran" ] || rm {shlex.quote(str(own_cache))}/*.c\n: > "$0.ran"\n'
        'exec gcc "$@"'
    )
    assert call(cache.build(SOURCE, 1), 1) == 8
    assert cache.stats.compiler_runs == 2


def test_a_library_in_use_survives_the_rebuilding(run: Run):
    made = cache.build(SOURCE, 1)
    library = load.load(made)
    made.with_name(f"{made.name}.sha256").unlink()
    cache.build(SOURCE, 1)
    assert run(library, 1) == 8
    library.close()


# Temporary files


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_no_temporary_file_survives_an_exception(
    error: type[BaseException], own_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    def fail(compiler: object, sources: object, output: Path, *more: object) -> None:
        output.write_text("half")
        (output.parent / "0.o").write_text("object")
        raise error

    monkeypatch.setattr(toolchain, "compile_shared", fail)
    with pytest.raises(error):
        cache.build(SOURCE, 1)
    assert all(name.endswith(".c") for name in names(own_cache))


def test_an_interrupt_stops_the_compiler_and_cleans_up(
    tmp_path: Path, own_cache: Path, script: Script, environment: Environment
):
    hanging = tmp_path / "cc"
    hanging.write_text(
        '#!/bin/sh\necho $$ > "$0.part"; mv "$0.part" "$0.pid"; sleep 60'
    )
    hanging.chmod(0o755)
    # A job in the background starts its children with interrupts turned off.
    text = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    text += f"from uopc.backend_c import cache\ncache.build({SOURCE!r}, 1)\n"
    process = subprocess.Popen(
        script(text),
        env=environment(UOPC_CC=shlex.quote(str(hanging))),
        stderr=subprocess.PIPE,
        text=True,
    )
    pid_file, deadline = tmp_path / "cc.pid", time.monotonic() + 30
    while not pid_file.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in process.communicate(timeout=30)[1]
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
    assert [name[-2:] for name in names(own_cache)] == [".c"]


def test_sixteen_processes_start_on_an_empty_cache(
    own_cache: Path, script: Script, environment: Environment
):
    """All at once: the parent has imported everything and forks behind a barrier."""
    text = """
import multiprocessing, os, sys
import numpy as np
from uopc.backend_c import cache
from uopc.tensor import Tensor

fork = multiprocessing.get_context("fork")
gate, right = fork.Barrier(16), fork.Value("i", 0)

def work():
    x = Tensor(np.arange(4, dtype=np.float32))
    gate.wait()
    if (x * 2 + 1).tolist() == [1, 3, 5, 7]:
        with right:
            right.value += 1

running = [fork.Process(target=work) for _ in range(16)]
for process in running:
    process.start()
for process in running:
    process.join(120)
print(right.value)
"""
    done = subprocess.run(
        script(text),
        env=environment(UOPC_BACKEND="c", UOPC_CHECK="1"),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=150,
    )
    assert done.stdout == "16\n"
    objects = list(own_cache.glob("*.so"))
    assert len(objects) == 2  # the program, and for what the compiler makes code
    assert all(cache.intact(entry) for entry in objects)
    kinds = {name.partition(".")[2] for name in names(own_cache)}
    assert kinds <= {"c", "so", "so.sha256", "plan"}


def test_leavings_of_killed_processes_are_swept_once_old(own_cache: Path):
    own_cache.mkdir(mode=0o700)
    old, young = own_cache / ".tmp-old", own_cache / ".tmp-young"
    for folder in (old, young):
        folder.mkdir()
        (folder / "0.o").touch()
    os.utime(old, (0, 0))
    cache.build(SOURCE, 1)
    assert young.exists()
    assert not old.exists()
