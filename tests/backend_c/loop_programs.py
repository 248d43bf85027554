"""Loop programs written by hand, run natively and by the interpreter."""

import ctypes
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from uopc.backend_c.backend import spellings
from uopc.backend_c.emit import Function, PlanText
from uopc.backend_c.printer import KernelPrinter, global_buffers
from uopc.backend_c.toolchain import BASE_FLAGS, LIBRARIES, find_compiler
from uopc.config import overriding
from uopc.dtype import DType, i32
from uopc.interp import run_loops
from uopc.runtime import Lowered
from uopc.spec import check
from uopc.uop import Ops, UOp, toposort

Array = np.ndarray[Any, Any]
GUARD, FILL = 128, 0xA5
STRICT = ("-Wall", "-Wextra", "-Werror")


def loop(number: int, extent: int, kind: str = "serial", dtype: DType = i32) -> UOp:
    return UOp(Ops.RANGE, (), (number, extent, dtype, kind))


def buf(slot: int, size: int, dtype: DType) -> UOp:
    return UOp.buffer(size, dtype, slot)


def local(slot: int, size: int, dtype: DType) -> UOp:
    return UOp.buffer(size, dtype, slot, space="local")


def at(index: UOp | int) -> UOp:
    return index if isinstance(index, UOp) else UOp.const(index, i32)


def read(buffer: UOp, index: UOp | int, gate: UOp | None = None) -> UOp:
    gates = () if gate is None else (gate,)
    return UOp(Ops.INDEX, (buffer, at(index), *gates))


def store(buffer: UOp, index: UOp | int, value: UOp) -> UOp:
    return UOp(Ops.STORE, (buffer, at(index), value))


def end(over: UOp, *body: UOp) -> UOp:
    return UOp(Ops.END, (over, *body))


def sink(name: str, *statements: UOp) -> UOp:
    made = UOp(Ops.SINK, statements, name)
    check(toposort([made]), "loops")
    return made


def printed(program: UOp, opt: int = 1) -> KernelPrinter:
    with overriding(UOPC_OPT=opt):
        printer = KernelPrinter(program, spellings())
        printer.body = printer.text()
    return printer


def source(programs: Iterable[UOp]) -> str:
    """All programs as one file."""
    with overriding(UOPC_OPT=1):
        made = [Function.of(Lowered(p, ""), spellings()) for p in programs]
    return PlanText(tuple(made), "").source


def compiled(text: str, folder: Path, *flags: str, command: Sequence[str] = ()) -> Path:
    """A text as a shared object; with ``-c`` among the flags an object file."""
    file, out = folder / "programs.c", folder / "programs.so"
    file.write_text(text)
    base = [f for f in BASE_FLAGS if f != "-shared" or "-c" not in flags]
    argv = [*(command or find_compiler().argv), *base, *STRICT, *flags, str(file)]
    libraries = LIBRARIES if "-c" not in flags else ()
    argv += ["-o", str(out), *libraries]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]
    return out


def run_native(
    library: ctypes.CDLL, program: UOp, data: Mapping[int, Array]
) -> dict[int, Array]:
    """What a program stores, computed by its C function."""
    memory: dict[int, Array] = {}
    for b in global_buffers(program):
        given = data.get(b.arg.slot)
        start = np.zeros(b.arg.size, b.dtype.numpy) if given is None else given
        memory[b.arg.slot] = _guarded(b.dtype.store(start))
    pointers = [
        ctypes.c_void_p(memory[b.arg.slot].ctypes.data + GUARD)
        for b in global_buffers(program)
    ]
    getattr(library, program.arg)(*pointers)
    stored = {u.src[0] for u in toposort([program]) if u.op is Ops.STORE}
    results = {}
    for b in stored:
        if b.arg.space == "global":
            raw = memory[b.arg.slot]
            assert (raw[:GUARD] == FILL).all() and (raw[-GUARD:] == FILL).all()
            results[b.arg.slot] = b.dtype.load(raw[GUARD:-GUARD].view(b.dtype.storage))
    return results


def _guarded(content: Array) -> Array:
    """Bytes that begin with what is given, aligned, and show writes on both sides."""
    raw = np.full(content.nbytes + 3 * GUARD, FILL, np.uint8)
    first = -raw.ctypes.data % GUARD
    raw = raw[first : first + content.nbytes + 2 * GUARD]
    raw[GUARD:-GUARD] = np.ascontiguousarray(content).view(np.uint8)
    return raw


def bits_equal(a: Array, b: Array) -> bool:
    """Equal to the bit; NaNs are all alike."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind == "f":
        nan = np.isnan(a)
        same = (a == b) & (np.signbit(a) == np.signbit(b))
        return bool(np.all(np.where(nan, np.isnan(b), same)))
    return bool(np.array_equal(a, b))


def compare(
    programs: Mapping[UOp, Mapping[int, Array]],
    folder: Path,
    *flags: str,
    command: Sequence[str] = (),
    equal: Callable[[Array, Array], bool] = bits_equal,
) -> list[str]:
    """The programs whose native results differ from the interpreter's."""
    path = compiled(source(programs), folder, *flags, command=command)
    library = ctypes.CDLL(str(path))
    wrong = []
    for program, data in programs.items():
        got, want = run_native(library, program, data), run_loops(program, data)
        for slot, x in want.items():
            if not equal(got[slot], x):
                wrong.append(f"{program.arg}: {got[slot]} instead of {x}")
    return wrong
