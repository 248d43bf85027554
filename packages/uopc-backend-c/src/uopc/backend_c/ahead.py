"""A head start for the compiler: units are compiled while others are still printed.

What comes of it is objects of the same units that `cache.build` would compile. It is
never needed: where something fails, whatever it is, `build` compiles all units itself,
and reports what it meets as it always does.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType

from uopc.backend_c import cpu, room, toolchain
from uopc.backend_c.folder import cache_dir
from uopc.backend_c.jobs import Batch, CompileError
from uopc.backend_c.scratch import scratch_folder, surely
from uopc.runtime.interrupts import interrupts_held


class HeadStart:
    """Compilers at work on the first units of a plan; leaving it stops them.

    While units are added, one core is left to who prints them.
    """

    def __init__(self, opt: int) -> None:
        self._opt = opt
        self._stack = ExitStack()
        self._batch: Batch | None = None
        self._folder = Path()
        self._units: dict[str, str] = {}
        self._failed = False

    def __enter__(self) -> HeadStart:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        surely(self._stack.close)

    def add(self, units: Mapping[str, str]) -> None:
        """Units that are complete; also called without any, to see how far it is."""
        if not self._failed and cpu.cores() > 1 and (units or self._units):
            try:
                self._add(units)
                if self._batch is not None:
                    self._batch.step(cpu.cores() - 1)
            except (CompileError, OSError):
                self._give_up()

    def objects(self, units: Mapping[str, str]) -> list[Path] | None:
        """The objects of all units of the plan, or None: they are not to be had."""
        begun = self._units.items() <= units.items()
        if self._failed or self._batch is None or not begun:
            return None
        try:
            self._add({name: units[name] for name in units if name not in self._units})
            self._batch.finish()
        except (CompileError, OSError):
            self._give_up()
            return None
        return [self._folder / f"{name}.o" for name in units]

    def _add(self, units: Mapping[str, str]) -> None:
        for name, text in units.items():
            if self._batch is None:
                self._batch = self._opened()
            compiler = toolchain.find_compiler()
            source = self._folder / f"{name}.c"
            source.write_bytes(text.encode())
            made = self._folder / f"{name}.o"
            self._batch.add(toolchain.unit_job(compiler, source, made, self._opt))
            self._units[name] = text

    def _opened(self) -> Batch:
        with interrupts_held():  # else nobody might know the folder
            made = scratch_folder(room.TEMPORARY, cache_dir())
            self._folder = self._stack.enter_context(made)
            batch = Batch(self._folder)
            self._stack.callback(lambda: surely(batch.stop))
        return batch

    def _give_up(self) -> None:
        self._failed = True
        with suppress(OSError):
            surely(self._stack.close)
