"""Noticing that plans are made again and again for a number that changes."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from uopc.kernelize.key import Key
from uopc.uir import format_literal
from uopc.uop import Literal, Ops, UOp, fork_safe, toposort

PATIENCE = 5
# How many structures are remembered: the latest ones.
STRUCTURES = 256


@dataclass
class _Misses:
    """The latest misses of one structure, which differ in the same constants."""

    values: list[Literal]
    changing: list[int] = field(default_factory=list)
    count: int = 1
    told: bool = False


_seen: dict[tuple[int, int], _Misses] = {}
_lock = fork_safe(threading.Lock())


def notice_miss(key: Key, roots: Sequence[UOp], leaves: Mapping[UOp, UOp]) -> None:
    """Count a plan that was not found; warn if a constant seems to be the reason.

    One RuntimeWarning is given per structure, when it has missed PATIENCE times in a
    row and each time the same constants differed, and nothing else.
    """
    rest, values = list(key), []
    for i, (op, arg) in enumerate(pairwise(key), 1):
        if op is Ops.CONST and isinstance(arg, Literal):
            rest[i] = arg.dtype
            values.append(arg)
    # A hash will do: no plan is chosen by it.
    structure = hash(tuple(rest)), len(values)
    with _lock:
        # Taken out and put back, so that the one seen longest ago is the first.
        misses = _seen.pop(structure, None) or _Misses(values)
        _seen[structure] = misses
        if len(_seen) > STRUCTURES:
            del _seen[next(iter(_seen))]
        before = misses.values
        changing = [i for i, v in enumerate(values) if v != before[i]]
        same = changing == misses.changing
        misses.count = (misses.count if same else 1) + 1 if changing else 1
        misses.values, misses.changing = values, changing
        if misses.count < PATIENCE or misses.told:
            return
        misses.told = True
    first = changing[0]
    message = _message(values[first], before[first], len(changing), roots, leaves)
    warnings.warn(message, RuntimeWarning, stacklevel=_level_of_the_user())


def _message(
    now: Literal,
    before: Literal,
    count: int,
    roots: Sequence[UOp],
    leaves: Mapping[UOp, UOp],
) -> str:
    others = f" (and {count - 1} more)" if count > 1 else ""
    new, old = format_literal(now), format_literal(before)
    return (
        f"the same graph has been compiled {PATIENCE} times, each time for another "
        f"value of a constant{others}: it is {new} and was {old}"
        f"{_use(UOp(Ops.CONST, (), now), roots, leaves)}. Keep such a number in a 0-d "
        "Tensor, as optimizers keep their learning rates: there it is data, and one "
        "plan serves all values that assign() gives it"
    )


def _use(constant: UOp, roots: Sequence[UOp], leaves: Mapping[UOp, UOp]) -> str:
    """Which op reads the constant, looking through views and casts of it."""
    views = {constant}
    for u in toposort(roots, lambda n: () if n in leaves else n.src):
        if views.isdisjoint(u.src):
            continue
        if u.op.kind != "movement" and u.op is not Ops.CAST:
            return f", in {u.op.name} of {u.dtype}{list(u.shape)}"
        views.add(u)
    return ""


def _level_of_the_user() -> int:
    """The stack level, seen from the caller, of the first frame outside of uopc."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] != "uopc":
            break
        level, frame = level + 1, frame.f_back
    return level
