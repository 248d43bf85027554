"""A plan as one C file with one entry point, compiled and called."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from uopc.backend_c.cache import build
from uopc.backend_c.load import LoadError, load
from uopc.backend_c.printer import KernelPrinter, global_buffers
from uopc.backend_c.spellings import AnySpelling
from uopc.backend_c.toolchain import CompileError
from uopc.config import get
from uopc.kernelize import Kernel, Plan
from uopc.plugins import registry
from uopc.runtime import lower
from uopc.uop import OpDef, Ops, UOp, toposort

ENTRY = "uopc_run"
Spellings = Mapping[OpDef, AnySpelling]


def print_kernel(ast: UOp, name: str, spellings: Spellings) -> tuple[str, list[str]]:
    """One kernel as C, and the helper functions it calls."""
    printer = KernelPrinter(lower(ast, name), spellings)
    return printer.text(), list(printer.helpers)


def print_plan(plan: Plan, spellings: Spellings) -> str:
    """All kernels of a plan, each distinct one once, and the entry point.

    The entry point takes one table of pointers, one per plan buffer.
    """
    helpers: dict[str, None] = {}
    functions: list[str] = []
    calls: list[str] = []
    names: dict[UOp, str] = {}
    loops: dict[UOp, UOp] = {}
    for k in plan.kernels:
        if k.ast not in loops:
            names[k.ast] = _unused(k.name, names)
            loops[k.ast] = lower(k.ast, names[k.ast])
            printer = KernelPrinter(loops[k.ast], spellings)
            functions.append(printer.text())
            helpers.update(printer.helpers)
        table = ", ".join(f"table[{i}]" for i in _arguments(k, loops[k.ast]))
        calls.append(f"  {names[k.ast]}({table});")
    entry = "\n".join([f"void {ENTRY}(void** table) {{", *calls, "}"])
    return "\n".join([*helpers, *functions, entry]) + "\n"


def _unused(name: str, names: Mapping[UOp, str]) -> str:
    taken = set(names.values())
    candidate, n = name, 1
    while candidate in taken:
        n += 1
        candidate = f"{name}_n{n}"
    return candidate


def _arguments(kernel: Kernel, sink: UOp) -> list[int]:
    """The plan buffers a kernel's C function takes, in order."""
    written = {u.src[0] for u in toposort([sink]) if u.op is Ops.STORE}
    return [
        kernel.out if b in written else kernel.args[b.arg.slot]
        for b in global_buffers(sink)
    ]


def _spelled_by(plan: Plan, spellings: Spellings) -> str:
    """Which ops of a plan are spelled by which plugin."""
    owners = registry().owners
    found: dict[str, set[str]] = {}
    for u in toposort(k.ast for k in plan.kernels):
        if u.op in spellings:
            owner = owners.get(("spellings", ("c", u.op)), "?")
            found.setdefault(owner, set()).add(u.op.name)
    rows = [
        f"{', '.join(sorted(ops))} (plugin {owner!r})" for owner, ops in found.items()
    ]
    return f"ops of this program, by who spelled them in C: {'; '.join(rows) or 'none'}"


class CProgram:
    """A compiled plan."""

    def __init__(self, plan: Plan, spellings: Spellings) -> None:
        self.source = print_plan(plan, spellings)
        try:
            self._library = load(build(self.source, get("UOPC_OPT")))
        except (CompileError, LoadError) as error:
            # C that is wrong, or calls what there is not, is some spelling's text.
            error.add_note(_spelled_by(plan, spellings))
            raise
        self._run = self._library.function(ENTRY)

    def __call__(self, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
        """Run on one flat array per plan buffer: one native call."""
        table = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
        self._run(table)
