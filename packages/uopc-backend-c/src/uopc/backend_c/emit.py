"""A plan as C: one text for the reader, and the units that the compiler gets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from uopc.backend_c.load import ENTRY
from uopc.backend_c.printer import KernelPrinter, global_buffers
from uopc.backend_c.spellings import Spellings
from uopc.backend_c.target import current_target
from uopc.backend_c.toolchain import stats
from uopc.backend_c.tuned import known_schedule
from uopc.config import get
from uopc.kernelize import Kernel, Plan
from uopc.runtime import Lowered, lower_kernel, lower_nest, nests_of
from uopc.schedule import PLAIN, Target
from uopc.simplify import remembering
from uopc.uop import Ops, UOp, collector_paused, toposort

UNIT_COST = 8000
"""What one unit is to cost, in characters: gcc takes some 20 us for each at -O2."""

_FUNCTION_COST = 200  # of a function besides its text

# The function that runs the rounds of parallel loops: a loop, until a pool takes over.
_PARALLEL = (
    "void (*uopc_parallel)(void (*task)(void**, long), void** table, long rounds)"
)
_DECLARED = f"extern {_PARALLEL};\n"
PARALLEL_DEFINED = f"""\
static void uopc_serial(void (*task)(void**, long), void** table, long n) {{
  for (long i = 0; i < n; i++) task(table, i);
}}

{_PARALLEL} = uopc_serial;
"""


@dataclass(frozen=True)
class Function:
    """The C function of one kernel, or of several in one loop nest.

    Attributes:
        name: its name.
        text: its text, and before it that of functions that belong to it alone.
        helpers: what has to come before that, once in a file.
    """

    name: str
    text: str
    helpers: tuple[str, ...]

    @staticmethod
    def of(lowered: Lowered, spellings: Spellings) -> Function:
        """A loop program, printed, under a comment that says its schedule."""
        printer = KernelPrinter(lowered.sink, spellings)
        text = printer.text()
        if lowered.schedule:
            text = f"// {lowered.schedule}\n{text}"
        declared = (_DECLARED,) if "uopc_parallel(" in text else ()
        return Function(lowered.sink.arg, text, (*declared, *printer.helpers))

    @property
    def parallel(self) -> bool:
        """Whether it has parallel loops."""
        return _DECLARED in self.helpers

    @property
    def prototype(self) -> str:
        """Its declaration."""
        found = re.search(rf"^void {self.name}\(.*\)(?= \{{$)", self.text, re.M)
        assert found is not None
        return f"{found[0]};"

    @property
    def cost(self) -> int:
        """About what compiling it takes, in characters."""
        return len(self.text) + _FUNCTION_COST


@dataclass(frozen=True)
class PlanText:
    """The functions of a plan, each distinct one once, and the entry point.

    The entry point takes one table of pointers, one per plan buffer. It calls the
    programs ``calls``, in this order.
    """

    functions: tuple[Function, ...]
    entry: str
    calls: tuple[Lowered, ...] = ()

    @property
    def source(self) -> str:
        """All of it as one file."""
        return _file(self.functions, [], self._entry)

    def units(self) -> dict[str, str] | str:
        """Files of about equal cost, by name; a small plan is one text.

        They depend on the plan alone, so that the same plan is the same entry of the
        cache on every machine of one kind.
        """
        parts = Parts()
        units: dict[str, str] = {}
        for f in self.functions:
            units |= parts.add(f)
        if not units:
            return self.source
        units |= parts.rest()
        units["entry"] = _file((), [f.prototype for f in self.functions], self._entry)
        return units

    @property
    def _entry(self) -> str:
        """The entry point, after what all units need of parallel loops."""
        parallel = any(f.parallel for f in self.functions)
        return f"{PARALLEL_DEFINED}\n{self.entry}" if parallel else self.entry


class Parts:
    """Puts the functions of a plan into files, in the order in which they come.

    So a file is known as soon as its functions are, and can be compiled.
    """

    def __init__(self) -> None:
        self._functions: list[Function] = []
        self._count = 0

    def add(self, function: Function) -> dict[str, str]:
        """Take a function; returns the file by name that is complete, if one is.

        It never is before a function comes that is not in it: a plan that fits into
        one file has no others.
        """
        full = sum(f.cost for f in self._functions) >= UNIT_COST
        complete = self.rest() if full else {}
        self._functions.append(function)
        return complete

    def rest(self) -> dict[str, str]:
        """The file of the functions that are in none yet, by name."""
        functions, self._functions = self._functions, []
        name = f"part{self._count}"
        self._count += 1
        return {name: _file(functions, [], "")}


def _file(functions: Sequence[Function], before: Iterable[str], entry: str) -> str:
    helpers = dict.fromkeys(h for f in functions for h in f.helpers)
    return "\n".join([*helpers, *before, *(f.text for f in functions), entry]) + "\n"


def print_kernel(ast: UOp, name: str, spellings: Spellings) -> tuple[str, list[str]]:
    """One kernel as C, and the helper functions it calls."""
    lowered = lower_kernel(ast, name, target=_target(), known=known_schedule)
    made = Function.of(lowered, spellings)
    return made.text, list(made.helpers)


def print_plan(plan: Plan, spellings: Spellings) -> str:
    """All kernels of a plan, each distinct one once, and the entry point."""
    return plan_text(plan.kernels, spellings).source


@collector_paused()
@remembering()
def plan_text(
    kernels: Sequence[Kernel],
    spellings: Spellings,
    watch: Callable[[Mapping[str, str]], None] | None = None,
) -> PlanText:
    """The C of a plan's kernels, not yet put together.

    ``watch`` is told after each function of those of its `PlanText.units` that are
    complete by then.
    """
    parts = Parts()
    functions: list[Function] = []
    calls: list[str] = []
    programs: list[Lowered] = []
    found: dict[object, _Called | None] = {}
    taken: set[str] = set()
    target = _target()
    waiting = list(reversed(nests_of(kernels)))
    while waiting:
        nest = waiting.pop()
        if nest.key not in found:
            name = _unused(nest.name, taken)
            made = lower_nest(nest, name, target, known_schedule)
            found[nest.key] = None if made is None else _Called.of(made)
            if made is not None:
                functions.append(Function.of(made, spellings))
                stats.kernels += 1
                complete = parts.add(functions[-1])
                if watch is not None:
                    watch(complete)
        called = found[nest.key]
        if called is None:  # it is no loop nest after all
            waiting += reversed(nest.without_last())
            continue
        places = [nest.buffer(slot, written) for slot, written in called.buffers]
        table = ", ".join(f"table[{n}]" for n in places)
        programs.append(called.lowered)
        calls.append(f"  {called.lowered.sink.arg}({table});")
    entry = "\n".join([f"void {ENTRY}(void** table) {{", *calls, "}"])
    return PlanText(tuple(functions), entry, tuple(programs))


@dataclass(frozen=True)
class _Called:
    """A program, and the slot of each of its buffers, with whether it writes there."""

    lowered: Lowered
    buffers: tuple[tuple[int, bool], ...]

    @staticmethod
    def of(lowered: Lowered) -> _Called:
        """What calls of a loop program's function are made of."""
        sink = lowered.sink
        written = {u.src[0] for u in toposort([sink]) if u.op is Ops.STORE}
        places = [(b.arg.slot, b in written) for b in global_buffers(sink)]
        return _Called(lowered, tuple(places))


def _target() -> Target:
    """The machine that is compiled for; where it is no matter, nobody is asked."""
    return current_target() if get("UOPC_OPT") else PLAIN


def _unused(name: str, taken: set[str]) -> str:
    candidate, n = name, 1
    while candidate in taken:
        n += 1
        candidate = f"{name}_n{n}"
    taken.add(candidate)
    return candidate
