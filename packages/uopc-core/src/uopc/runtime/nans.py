"""UOPC_NANS: which op made the first value that is not finite, and on whose line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from uopc.runtime.origins import origin_of
from uopc.runtime.values import importing
from uopc.uop import Ops, UOp, toposort

Array = np.ndarray[Any, Any]


def require_finite(
    roots: Sequence[UOp],
    leaves: Mapping[UOp, UOp],
    inputs: Mapping[UOp, Array],
    results: Sequence[Array],
) -> None:
    """Raise FloatingPointError for a NaN or an infinity that the graph has made.

    Args:
        roots: the graph that was computed.
        leaves: nodes that were known, and their buffers.
        inputs: the buffers and what was in them before.
        results: the flat memory of each root.

    What was in the inputs, is a constant, or came of such is not reported. Otherwise
    the graph is computed again, op by op, by the reference backend.
    """
    if all(
        _finite(u.dtype.load(x)) for u, x in zip(roots, results, strict=True)
        if u.dtype.is_float
    ):  # fmt: skip
        return
    # Imported when there is something to find, for start-up's sake.
    with importing:
        from uopc.interp import evaluate

    search = _Search()
    try:
        evaluate(roots, _data(roots, leaves, inputs), seen=search.see)
    except NotImplementedError as error:
        raise FloatingPointError(
            f"UOPC_NANS: a result is not finite; which op made it is not known, "
            f"since the reference backend cannot run all of them: {error}"
        ) from error
    found = search.first(roots)
    if found is not None:
        raise FloatingPointError(search.report(found))
    if not any(search.kinds.get(r) for r in roots):
        raise FloatingPointError(
            "UOPC_NANS: a result is not finite, but is on the reference backend; "
            "compare with UOPC_BACKEND=interp"
        )


def _data(
    roots: Sequence[UOp], leaves: Mapping[UOp, UOp], inputs: Mapping[UOp, Array]
) -> dict[UOp, Array]:
    """The values of the nodes at which the graph starts."""
    data: dict[UOp, Array] = {}
    for u in toposort(roots, lambda u: () if u in leaves else u.src):
        buf = u if u.op is Ops.BUFFER else leaves.get(u)
        if buf is not None:
            data[u] = u.dtype.load(inputs[buf]).reshape(u.shape)
    return data


def _finite(x: Array) -> bool:
    return bool(np.isfinite(x).all())


def _kinds(x: Array) -> frozenset[str]:
    """What is in an array besides finite numbers; infinities of both signs are one."""
    if x.dtype.kind != "f" or _finite(x):
        return frozenset()
    kinds = (("nan", np.isnan(x).any()), ("inf", np.isinf(x).any()))
    return frozenset(name for name, there in kinds if there)


def _names(x: Array) -> str:
    """What is in an array besides finite numbers, by name and sign."""
    there = {"nan": np.isnan(x), "inf": x == np.inf, "-inf": x == -np.inf}
    return " and ".join(name for name, where in there.items() if where.any())


class _Search:
    """Follows values that are not finite to the ops that they come from."""

    def __init__(self) -> None:
        self.kinds: dict[UOp, frozenset[str]] = {}
        self._names: dict[UOp, str] = {}
        self._place: dict[UOp, int] = {}
        self._cause: dict[UOp, UOp | None] = {}

    def see(self, u: UOp, value: Array, src: Sequence[UOp], values: Any) -> None:
        """Take note of a node, after its sources."""
        kinds = _kinds(value)
        if not kinds:
            return
        self.kinds[u] = kinds
        self._place[u] = len(self._place)
        passed = [
            s
            for i, s in enumerate(src)
            if s in self.kinds and _passes(u, i, value, values)
        ]
        causes = [c for s in passed if (c := self._cause[s]) is not None]
        if causes:
            self._cause[u] = min(causes, key=self._place.__getitem__)
        else:
            # NaN of an infinity that was given, as in inf - inf, is new as well.
            given = frozenset[str]().union(*(self.kinds[s] for s in passed))
            self._cause[u] = u if src and kinds - given else None
            self._names[u] = _names(value)

    def first(self, roots: Sequence[UOp]) -> UOp | None:
        """The first op, in the order of evaluation, that made what ``roots`` have."""
        causes = (self._cause.get(r) for r in roots)
        found = [c for c in causes if c is not None]
        return min(found, key=self._place.__getitem__) if found else None

    def report(self, u: UOp) -> str:
        """Which op, and where it was called."""
        origin = origin_of(u)
        if origin is None:
            where = "; its line is not known: it was made before UOPC_NANS was set"
        elif origin.what:
            where = f", in the {origin.what}, called at {origin}"
        else:
            where = f", called at {origin}"
        return (
            f"UOPC_NANS: the first value that is not finite is {self._names[u]} in the "
            f"result of {u.op.name}, {u.dtype}{list(u.shape)}{where}"
        )


def _passes(u: UOp, i: int, value: Array, values: Sequence[Array]) -> bool:
    """Whether what is not finite in source ``i`` gets into the result.

    Known to the element where the op is elementwise, and taken for granted elsewhere.
    """
    if u.op.kind != "elementwise":
        return True
    bad = ~np.isfinite(values[i]) & ~np.isfinite(value)
    if u.op is Ops.WHERE:
        bad &= values[0] if i == 1 else ~values[0]
    return bool(bad.any())
