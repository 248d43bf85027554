"""Kernels that are lowered together: each one alone, or several as one loop nest."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from uopc.config import get
from uopc.kernelize import Kernel
from uopc.runtime.passes import Lowered, lower_kernel, make_loops, one_nest, schedule
from uopc.uop import Ops, UOp, lazy, substitute, toposort

if TYPE_CHECKING:
    from uopc.schedule import Target
    from uopc.schedule.rules import Known


@dataclass(frozen=True)
class Nest:
    """Kernels of a plan that one loop program computes, in their order."""

    kernels: tuple[Kernel, ...]

    @property
    def name(self) -> str:
        """The kernel's name, or the first one's and how many they are."""
        first, count = self.kernels[0].name, len(self.kernels)
        return first if count == 1 else f"{first}_x{count}"

    @property
    def key(self) -> Hashable:
        """What its program depends on: equal nests need but one."""
        return tuple(
            (
                k.ast,
                k.over_slot,
                k.passing,
                *(self.number(b) for b in (*k.args, k.out)),
            )
            for k in self.kernels
        )

    def without_last(self) -> list[Nest]:
        """All kernels but the last one, and that one alone."""
        *first, last = self.kernels
        read = [replace(k, passing=k.passing and k.out not in last.args) for k in first]
        return [Nest(tuple(read)), Nest((last,))]

    def buffer(self, slot: int, written: bool) -> int:
        """The plan buffer behind a buffer of its program."""
        if len(self.kernels) > 1:
            return list(self._slots)[slot]
        (k,) = self.kernels
        return k.out if written else k.args[slot]

    def renumbered(self, i: int, sink: UOp) -> UOp:
        """The program of kernel ``i``, with one number for each memory of the nest."""
        k = self.kernels[i]
        nodes = toposort([sink])
        written = {u.src[0] for u in nodes if u.op is Ops.STORE}
        changes: dict[UOp, UOp] = {}
        for b in nodes:
            if _is_global(b):
                slot = self.number(k.out if b in written else k.args[b.arg.slot])
                changes[b] = UOp.buffer(b.arg.size, b.dtype, slot)
        return substitute([sink], changes)[0]

    def passing(self) -> list[int]:
        """The numbers of what no other kernel of the plan reads."""
        return [self.number(k.out) for k in self.kernels if k.passing]

    def number(self, buffer: int) -> int:
        """The number of a plan's buffer in the program."""
        return self._slots[self._homes.get(buffer, buffer)]

    @lazy
    def _homes(self) -> dict[int, int]:
        """The input behind each output that is written over one."""
        return {k.out: k.over for k in self.kernels if k.over is not None}

    @lazy
    def _slots(self) -> dict[int, int]:
        """Plan buffers by first visit, one for each memory."""
        found: dict[int, int] = {}
        for k in self.kernels:
            for b in (*k.args, k.out):
                found.setdefault(self._homes.get(b, b), len(found))
        return found


def nests_of(kernels: Iterable[Kernel]) -> list[Nest]:
    """The kernels of a plan as its marks group them; at level 0 each one alone."""
    groups: list[list[Kernel]] = []
    for k in kernels:
        if k.joined and groups and get("UOPC_OPT"):
            groups[-1].append(k)
        else:
            groups.append([k])
    return [Nest(tuple(group)) for group in groups]


def lower_nest(
    nest: Nest, name: str, target: Target | None = None, known: Known | None = None
) -> Lowered | None:
    """The scheduled loop program of a nest; None if its kernels must not be one.

    ``known``: see `lower_kernel`.
    """
    if len(nest.kernels) == 1:
        (k,) = nest.kernels
        return lower_kernel(k.ast, name, k.over_slot, target, known)
    sink = _as_one(nest, name, target)
    return None if sink is None else schedule(sink, target, known)


def in_scratch(nest: Nest, target: Target | None = None) -> list[bool] | None:
    """Which kernels' outputs are in scratch if a nest is one; None if it cannot be."""
    sink = _as_one(nest, nest.name, target)
    if sink is None:
        return None
    touched = {u.arg.slot for u in toposort([sink]) if _is_global(u)}
    return [nest.number(k.out) not in touched for k in nest.kernels]


def _as_one(nest: Nest, name: str, target: Target | None) -> UOp | None:
    parts = [
        nest.renumbered(i, make_loops(k.ast, k.name, k.over_slot))
        for i, k in enumerate(nest.kernels)
    ]
    return one_nest(parts, name, nest.passing(), target)


def _is_global(u: UOp) -> bool:
    return u.op is Ops.BUFFER and u.arg.space == "global"
