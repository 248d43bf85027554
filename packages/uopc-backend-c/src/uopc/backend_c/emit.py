"""A plan as C: one text for the reader, and the units that the compiler gets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from uopc.backend_c.printer import KernelPrinter, global_buffers
from uopc.backend_c.spellings import AnySpelling
from uopc.backend_c.toolchain import stats
from uopc.kernelize import Kernel, Plan
from uopc.runtime import lower
from uopc.uop import OpDef, Ops, UOp, toposort

ENTRY = "uopc_run"
UNIT_COST = 8000
"""What one unit is to cost, in characters: gcc takes some 50 us for each at -O3."""

_FUNCTION_COST = 200  # of a function besides its text

Spellings = Mapping[OpDef, AnySpelling]


@dataclass(frozen=True)
class Function:
    """One kernel's C function, and the helper functions that it calls."""

    text: str
    helpers: tuple[str, ...]

    @property
    def prototype(self) -> str:
        """Its declaration."""
        return self.text.partition(" {\n")[0] + ";"

    @property
    def cost(self) -> int:
        """About what compiling it takes, in characters."""
        return len(self.text) + _FUNCTION_COST


@dataclass(frozen=True)
class PlanText:
    """The functions of a plan, each distinct one once, and the entry point.

    The entry point takes one table of pointers, one per plan buffer.
    """

    functions: tuple[Function, ...]
    entry: str

    @property
    def source(self) -> str:
        """All of it as one file."""
        return _file(self.functions, [], self.entry)

    def units(self) -> dict[str, str] | str:
        """Files of about equal cost, by name; a small plan is one text.

        How many they are depends on the plan alone, so that the same plan is the
        same entry of the cache on every machine of one kind.
        """
        count = round(sum(f.cost for f in self.functions) / UNIT_COST)
        if count < 2:
            return self.source
        parts: list[list[Function]] = [[] for _ in range(count)]
        cost = [0] * count
        # The largest first, each to where there is least.
        for f in sorted(self.functions, key=lambda f: -f.cost):
            least = cost.index(min(cost))
            parts[least].append(f)
            cost[least] += f.cost
        units = {
            f"part{i}": _file(part, [], "") for i, part in enumerate(parts) if part
        }
        units["entry"] = _file((), [f.prototype for f in self.functions], self.entry)
        return units


def _file(functions: Sequence[Function], before: Iterable[str], entry: str) -> str:
    helpers = dict.fromkeys(h for f in functions for h in f.helpers)
    return "\n".join([*helpers, *before, *(f.text for f in functions), entry]) + "\n"


def print_kernel(ast: UOp, name: str, spellings: Spellings) -> tuple[str, list[str]]:
    """One kernel as C, and the helper functions it calls."""
    printer = KernelPrinter(lower(ast, name), spellings)
    return printer.text(), list(printer.helpers)


def print_plan(plan: Plan, spellings: Spellings) -> str:
    """All kernels of a plan, each distinct one once, and the entry point."""
    return plan_text(plan.kernels, spellings).source


def plan_text(kernels: Sequence[Kernel], spellings: Spellings) -> PlanText:
    """The C of a plan's kernels, not yet put together."""
    functions: list[Function] = []
    calls: list[str] = []
    loops: dict[tuple[UOp, int | None], UOp] = {}
    taken: set[str] = set()
    for k in kernels:
        # One pointer for what is read and written over: so restrict stays true.
        which = k.ast, k.over_slot
        if which not in loops:
            loops[which] = lower(k.ast, _unused(k.name, taken), k.over_slot)
            printer = KernelPrinter(loops[which], spellings)
            functions.append(Function(printer.text(), tuple(printer.helpers)))
            stats.kernels += 1
        table = ", ".join(f"table[{i}]" for i in _arguments(k, loops[which]))
        calls.append(f"  {loops[which].arg}({table});")
    entry = "\n".join([f"void {ENTRY}(void** table) {{", *calls, "}"])
    return PlanText(tuple(functions), entry)


def _unused(name: str, taken: set[str]) -> str:
    candidate, n = name, 1
    while candidate in taken:
        n += 1
        candidate = f"{name}_n{n}"
    taken.add(candidate)
    return candidate


def _arguments(kernel: Kernel, sink: UOp) -> list[int]:
    """The plan buffers a kernel's C function takes, in order."""
    written = {u.src[0] for u in toposort([sink]) if u.op is Ops.STORE}
    return [
        kernel.out if b in written else kernel.args[b.arg.slot]
        for b in global_buffers(sink)
    ]
