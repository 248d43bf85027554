"""A compiled plan: built or found, loaded, and called."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from uopc.backend_c import plans
from uopc.backend_c.load import ENTRY, Library, LoadError, load
from uopc.backend_c.pool import use_pool
from uopc.backend_c.spellings import Spellings
from uopc.backend_c.toolchain import CompileError
from uopc.backend_c.watch import counted
from uopc.config import get, overriding
from uopc.kernelize import Kernel, Plan
from uopc.plugins import registry
from uopc.runtime.values import importing
from uopc.uop import toposort

if TYPE_CHECKING:
    from uopc.backend_c.emit import PlanText


def _spelled_by(kernels: Sequence[Kernel], spellings: Spellings) -> str:
    """Which ops of a plan are spelled by which plugin."""
    owners = registry().owners
    found: dict[str, set[str]] = {}
    for u in toposort(k.ast for k in kernels):
        if u.op in spellings:
            owner = owners.get(("spellings", ("c", u.op)), "?")
            found.setdefault(owner, set()).add(u.op.name)
    rows = [
        f"{', '.join(sorted(ops))} (plugin {owner!r})" for owner, ops in found.items()
    ]
    return f"ops of this program, by who spelled them in C: {'; '.join(rows) or 'none'}"


class CProgram:
    """A compiled plan.

    Where the cache knows the plan, nothing is lowered, printed or compiled.
    """

    def __init__(self, plan: Plan, spellings: Spellings) -> None:
        # Not the plan, which holds its programs: the circle would outlive it.
        self._kernels = plan.kernels
        self._spellings = spellings
        self._opt: int = get("UOPC_OPT")
        self._printed: PlanText | None = None
        key = plans.plan_key(plan, self._opt)
        self._library = _remembered(key) or self._built(key)
        self._run = counted(self, self._library.function(ENTRY))
        use_pool(self._library)

    def _built(self, key: str | None) -> Library:
        with importing:  # where nothing is compiled, it is not needed
            from uopc.backend_c.ahead import HeadStart
            from uopc.backend_c.cache import build

        with HeadStart(self._opt) as ahead:
            # Without a key every pass is run each time, though the C may be known.
            units = self._text(ahead.add if key else None).units()
            try:
                try:
                    entry = build(units, self._opt, ahead=ahead)
                    library = load(entry)
                except LoadError:
                    if entry.exists():
                        raise
                    # Another process has just made room in the cache.
                    entry = build(units, self._opt)
                    library = load(entry)
            except (CompileError, LoadError) as error:
                # C that is wrong, or calls what there is not, is some spelling's text.
                error.add_note(_spelled_by(self._kernels, self._spellings))
                raise
        if key:
            plans.remember(key, entry)
        return library

    def _text(
        self, watch: Callable[[Mapping[str, str]], None] | None = None
    ) -> PlanText:
        """The C of the plan, printed once; ``watch`` is for `plan_text`."""
        if self._printed is None:
            with importing:
                from uopc.backend_c.emit import plan_text

            with overriding(UOPC_OPT=self._opt):
                self._printed = plan_text(self._kernels, self._spellings, watch)
        return self._printed

    @property
    def text(self) -> PlanText:
        """The functions and what they were made of; lowered when it is asked for."""
        return self._text()

    @property
    def library(self) -> Library:
        """The shared object with these functions."""
        return self._library

    @property
    def opt(self) -> int:
        """The level of UOPC_OPT that it was made at."""
        return self._opt

    @property
    def source(self) -> str:
        """The plan as one C file; printed when it is asked for."""
        return self._text().source

    def __call__(self, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
        """Run on one flat array per plan buffer: one native call."""
        self._run((ctypes.c_void_p * len(arrays))(*map(self.address, arrays)))

    def table(self, length: int) -> tuple[Callable[[Any], None], Any]:
        """The native function, and a table of addresses for it that is not filled."""
        return self._run, (ctypes.c_void_p * length)()

    def address(self, array: np.ndarray[Any, Any]) -> int:
        """What such a table has for an array."""
        if not array.size:
            return 0
        try:  # several times as fast as ``array.ctypes``
            return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]
        except TypeError:  # what is read only has no writable buffer
            return array.ctypes.data


def _remembered(key: str | None) -> Library | None:
    """The program that the cache has for a plan's key, open."""
    entry = plans.find(key) if key else None
    if entry is None:
        return None
    try:
        return load(entry)
    except LoadError:
        return None  # building it says what is wrong
