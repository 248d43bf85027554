"""A loop program as one C function, and those that belong to it."""

from __future__ import annotations

from uopc.backend_c.scalars import PAD, ScalarPrinter, buffers, variable
from uopc.backend_c.spellings import Spellings
from uopc.backend_c.statements import StatementPrinter
from uopc.backend_c.streams import FENCE
from uopc.backend_c.tasks import shared_locals, task_start
from uopc.backend_c.tiles import exposed_locals
from uopc.backend_c.types import c_type
from uopc.uop import UOp, toposort


class KernelPrinter:
    """Prints one loop program; ``helpers`` collects what the text calls."""

    def __init__(self, sink: UOp, spellings: Spellings) -> None:
        self.sink = sink
        self._shared = shared_locals(sink.src)
        in_memory = self._shared | exposed_locals(sink.src)
        self._scalars = ScalarPrinter([sink], spellings, in_memory)
        self._statements = StatementPrinter(self._scalars, sink.src)
        self._tasks: list[str] = []

    @property
    def helpers(self) -> dict[str, None]:
        """Definitions that come before the function, in order."""
        return self._scalars.helpers

    def text(self) -> str:
        """The function, and before it those that run the rounds of parallel loops."""
        pointers = ", ".join(
            f"{c_type(b.dtype)}* restrict {variable(b)}"
            for b in global_buffers(self.sink)
        )
        lines = self._scalars.lines = [f"void {self.sink.arg}({pointers}) {{"]
        self._statements.block(self.sink.src, {}, PAD, self._task)
        self._wait()
        return "\n".join([*self._tasks, *lines, "}"]) + "\n"

    def _task(self, end: UOp) -> None:
        """Print a parallel loop as a function of its own, and its call."""
        loop, *body = end.src
        n = len(self._tasks)
        name = f"{self.sink.arg}_task{n}"
        shared = [b for b in buffers(body, "local") if b in self._shared]
        taken = [*buffers(body, "global"), *shared]
        index = self._scalars.ranges[loop] if loop in toposort(body) else ""
        outer, streams = self._scalars.lines, self._scalars.streams
        lines = self._scalars.lines = task_start(name, loop, taken, index)
        self._scalars.streams = False
        self._statements.block(tuple(body), {}, PAD)
        self._wait()
        self._tasks.append("\n".join([*lines, "}"]) + "\n")
        self._scalars.lines, self._scalars.streams = outer, streams
        pointers = ", ".join(map(variable, taken))
        outer.append(f"{PAD}void* table{n}[] = {{{pointers}}};")
        outer.append(f"{PAD}uopc_parallel({name}, table{n}, {loop.arg.extent});")

    def _wait(self) -> None:
        """End a function: others see what it stored past the cache."""
        if self._scalars.streams:
            self._scalars.streams = False
            self._scalars.helpers[FENCE] = None
            self._scalars.lines.append(f"{PAD}uopc_fence();")


def global_buffers(sink: UOp) -> list[UOp]:
    """The kernel's arguments: BUFFERs it still reads or writes, by slot."""
    return buffers([sink], "global")
