"""Batching rules: each op over a batch, which is the first axis of what has it.

``u`` is the node, ``src`` its sources for the whole batch, ``has`` which of them have
the additional axis. Elementwise ops need no rule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from uopc.autodiff.batching import batched, repeated
from uopc.autodiff.rules import selection
from uopc.autodiff.rules.selection import custom_name
from uopc.autodiff.tracing import fresh
from uopc.composite import iota, sum_to
from uopc.uop import OpDef, Ops, UOp, substitute

Sources = tuple[UOp, ...]
Flags = tuple[bool, ...]
Rule = Callable[[UOp, Sources, Flags], UOp]


def _every(src: Sources, has: Flags) -> Iterator[UOp]:
    """All sources with the axis."""
    n = _length(src, has)
    return (s if h else repeated(s, n) for s, h in zip(src, has, strict=True))


def _length(src: Sources, has: Flags) -> int:
    return src[has.index(True)].shape[0]


def _places(like: UOp) -> UOp:
    """0, 1, ... along the first axis, of the shape of ``like``."""
    n = like.shape[0]
    return iota(n).reshape((n,) + (1,) * (len(like.shape) - 1)).expand(like.shape)


def _moved(u: UOp, source: int, target: int) -> UOp:
    """One axis put elsewhere; the others keep their order."""
    axes = [k for k in range(len(u.shape)) if k != source]
    axes.insert(target, source)
    return u if axes == sorted(axes) else u.permute(axes)


def _shrink(u: UOp, src: Sources, has: Flags) -> UOp:
    return src[0].shrink(((0, src[0].shape[0]), *u.arg))


def _stack(u: UOp, src: Sources, has: Flags) -> UOp:
    return _moved(UOp.stack(tuple(_every(src, has))), 1, 0)


def _index(u: UOp, src: Sources, has: Flags) -> UOp:
    if not any(has[1:]):
        # The batch goes behind the axes that are indexed, and back.
        x = _moved(src[0], 0, len(src) - 1).index(*src[1:])
        return _moved(x, len(src[1].shape), 0)
    x, *idx = _every(src, has)
    if not has[0]:
        return src[0].index(*idx)
    return x.index(_places(idx[0]), *idx)


def _scatter_add(u: UOp, src: Sources, has: Flags) -> UOp:
    if not any(has[1:]):
        g = _moved(src[0], 0, len(src[1].shape))
        return _moved(UOp(Ops.SCATTER_ADD, (g, *src[1:]), u.arg), len(u.arg), 0)
    g, *idx = _every(src, has)
    lengths = (g.shape[0], *u.arg)
    return UOp(Ops.SCATTER_ADD, (g, _places(idx[0]), *idx), lengths)


def _conv(u: UOp, src: Sources, has: Flags) -> UOp:
    """The batch joins the axis of its source that the other one does not have.

    If both have it, it joins the groups.
    """
    x, w = src
    n, further = _length(src, has), u.shape[3:]
    lead, second = list(u.shape[:3]), u.arg.second
    if all(has):
        x = _moved(x, 0, 1)  # (A, n, G, C, ...)
        x = x.reshape((x.shape[0], n * x.shape[2], *x.shape[3:]))
        w = w.reshape((n * w.shape[1], *w.shape[2:]))
        place = 0 if second else 1
    elif has[0]:
        x = x.reshape((n * x.shape[1], *x.shape[2:]))
        place = 2 if second else 0
    else:
        w = _moved(w, 0, 1)  # (G, n, B, C, ...)
        w = w.reshape((w.shape[0], n * w.shape[2], *w.shape[3:]))
        place = 1 if second else 2
    lead.insert(place, n)
    return _moved(UOp(Ops.CONV, (x, w), u.arg).reshape((*lead, *further)), place, 0)


def _stage(u: UOp, src: Sources, has: Flags) -> UOp:
    if u.arg.startswith("custom_"):
        n = _length(src, has)
        value = src[0] if has[0] else repeated(src[0], n)
        name = _custom_name(u.arg, (True, *has[1:]))
        return UOp(Ops.STAGE, (value, *src[1:]), name)
    if has[0]:
        return u.with_src(src)
    # It waits, or is computed again, for the sake of a batch, and is itself none.
    return repeated(u.with_src(src), _length(src, has))


@functools.cache
def _custom_name(name: str, has: Flags) -> str:
    """The name for a batch of STAGEs of another name; the same one each time."""
    return custom_name(_CustomRule(name, has))


@dataclass(frozen=True)
class _CustomRule:
    """The gradient rule of a custom_vjp over a batch: its rule, batched.

    Attributes:
        name: the STAGE of one element.
        has: which of the sources have the batch.
    """

    name: str
    has: Flags

    def __call__(self, u: UOp, g: UOp) -> tuple[UOp | None, ...]:
        # Placeholders for one element, and for the batch, so that no walk leaves what
        # the rule builds.
        pairs = [*zip(u.src, self.has, strict=True), (g, True)]
        ones = [fresh(s, s.shape[1:] if h else s.shape) for s, h in pairs]
        wide = {p: fresh(s) for p, (s, h) in zip(ones, pairs, strict=True) if h}
        parts = selection.CUSTOM[self.name](
            UOp(Ops.STAGE, tuple(ones[:-1]), self.name), ones[-1]
        )
        found = batched([p for p in parts if p is not None], wide)
        given = zip(ones, pairs, strict=True)
        actual = {wide.get(p, p): s for p, (s, _) in given}
        placed = iter(substitute([v for v, _ in found], actual))
        flags = iter([flag for _, flag in found])
        n = g.shape[0]
        whole = [
            p if p is None else self._part(next(placed), next(flags), h, n)
            for p, h in zip(parts, self.has, strict=True)
        ]
        return tuple(whole)

    @staticmethod
    def _part(v: UOp, flag: bool, has: bool, n: int) -> UOp:
        """The gradient of one source; one that all elements share gets their sum."""
        v = v if flag else repeated(v, n)
        return v if has else sum_to(v, (1, *v.shape[1:])).reshape(v.shape[1:])


RULES: dict[OpDef, Rule] = {
    Ops.RESHAPE: lambda u, src, has: src[0].reshape((src[0].shape[0], *u.shape)),
    Ops.EXPAND: lambda u, src, has: src[0].expand((src[0].shape[0], *u.shape)),
    Ops.PERMUTE: lambda u, src, has: src[0].permute((0, *(a + 1 for a in u.arg))),
    Ops.SHRINK: _shrink,
    Ops.FLIP: lambda u, src, has: src[0].flip([a + 1 for a in u.arg]),
    Ops.REDUCE: lambda u, src, has: src[0].reduce(*u.arg),
    Ops.STACK: _stack,
    Ops.INDEX: _index,
    Ops.SCATTER_ADD: _scatter_add,
    Ops.CONV: _conv,
    Ops.STAGE: _stage,
}
