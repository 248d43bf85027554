"""Noticing that plans are made again and again for a number that changes."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from uopc.kernelize.key import Key
from uopc.uir import format_literal
from uopc.uop import Literal, Ops, UOp, fork_safe, toposort, warn_caller

PATIENCE = 5
# How many structures are remembered: the latest ones.
STRUCTURES = 256


# Of windows, where each begins: the widths are in the shapes.
Value = Literal | tuple[int, ...]


@dataclass
class _Misses:
    """The latest misses of one structure, which differ in the same constants."""

    values: list[Value]
    changing: list[int] = field(default_factory=list)
    count: int = 1
    told: bool = False


_seen: dict[tuple[int, int], _Misses] = {}
_lock = fork_safe(threading.Lock())


def notice_miss(key: Key, roots: Sequence[UOp], leaves: Mapping[UOp, UOp]) -> None:
    """Count a plan that was not found; warn if a constant seems to be the reason.

    Where the window of a slice begins is a constant too. One RuntimeWarning is given
    per structure, when it has missed PATIENCE times in a row and each time the same
    constants differed, and nothing else.
    """
    rest: list[object] = list(key)
    values: list[Value] = []
    for i, (op, arg) in enumerate(pairwise(key), 1):
        if op is Ops.CONST and isinstance(arg, Literal):
            rest[i] = arg.dtype
            values.append(arg)
        elif op is Ops.SHRINK and isinstance(arg, tuple):
            rest[i] = tuple(end - begin for begin, end in arg)
            values.append(tuple(begin for begin, _ in arg))
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
    others = f" (and {len(changing) - 1} more)" if len(changing) > 1 else ""
    what = _message(values[first], before[first], others, roots, leaves)
    warn_caller(f"the same graph has been compiled {PATIENCE} times, {what}")


def _message(
    now: Value,
    before: Value,
    others: str,
    roots: Sequence[UOp],
    leaves: Mapping[UOp, UOp],
) -> str:
    if not isinstance(now, Literal) or not isinstance(before, Literal):
        return (
            f"each time for a slice that begins elsewhere{others}: at {now}, "
            f"and before at {before}. {_POSITIONS}"
        )
    user = _user(UOp(Ops.CONST, (), now), roots, leaves)
    use, advice = "", _NUMBERS
    if user is not None:
        use = f", in {user.op.name} of {user.dtype}{list(user.shape)}"
        advice = _POSITIONS if user.op is Ops.INDEX else _NUMBERS
    return (
        f"each time for another value of a constant{others}: it is "
        f"{format_literal(now)} and was {format_literal(before)}{use}. {advice}"
    )


_POSITIONS = (
    "A position that is a Python number is part of the program. One plan serves all "
    "positions that are data: t[Tensor(np.asarray(i))], t[np.arange(i, j)]; or slice "
    "the NumPy array before it is wrapped in a Tensor"
)
_NUMBERS = (
    "Keep such a number in a 0-d Tensor, as optimizers keep their learning rates: "
    "there it is data, and one plan serves all values that assign() gives it. Made "
    "anew, Tensor(np.asarray(number)) is data too, also as a position"
)


def _user(constant: UOp, roots: Sequence[UOp], leaves: Mapping[UOp, UOp]) -> UOp | None:
    """Which op reads the constant, looking through views and casts of it."""
    views = {constant}
    for u in toposort(roots, lambda n: () if n in leaves else n.src):
        if views.isdisjoint(u.src):
            continue
        if u.op.kind != "movement" and u.op is not Ops.CAST:
            return u
        views.add(u)
    return None
