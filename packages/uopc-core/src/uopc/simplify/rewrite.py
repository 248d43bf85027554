"""The one rewriter: bottom-up, to a fixed point, remembering every node."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from uopc.config import get
from uopc.plugins import registry
from uopc.simplify.bounds import Bounds
from uopc.simplify.context import Facts, facts
from uopc.simplify.pattern import Rule
from uopc.simplify.rules import RULES
from uopc.uop import OpDef, Ops, UOp

MAX_REWRITES = 100_000  # of one call; a large kernel takes some thousands
MAX_FACTS = 16  # conditions inside conditions that are looked through
# Branches that one simplifier looks into. A branch that is shared by conditions which
# share branches in turn lies in exponentially many combinations of them.
MAX_BRANCHES = 256


class Simplifier:
    """Simplifies expressions and statements over one set of rules.

    By default these are the built-in rules and those that plugins registered for
    the stage "simplify".

    Results are remembered, so building an expression step by step and
    simplifying each step costs no more than simplifying it once.
    """

    def __init__(self, rules: Iterable[Rule] | None = None, known: Facts = ()) -> None:
        if rules is None:
            rules = (*RULES, *registry().rewrites.get("simplify", ()))
        self.bounds = Bounds(known)
        self._all_rules = rules = tuple(rules)
        self._known = known
        self._inner: dict[Facts, Simplifier] = {}
        self._branches_left = [MAX_BRANCHES]  # one count, shared with the inner ones
        self._memo: dict[UOp, UOp] = {}
        self._rules: dict[OpDef, list[Rule]] = {}
        for rule in rules:
            self._rules.setdefault(rule.pattern.op, []).append(rule)
        self._last = "constant folding"
        self._trace = get("UOPC_DEBUG") >= 4

    def __call__(self, root: UOp) -> UOp:
        """The simplified ``root``."""
        memo, stack = self._memo, [root]
        left = MAX_REWRITES
        while stack:
            u = stack[-1]
            if u in memo:
                stack.pop()
                continue
            if self._known and u.op is Ops.INDEX:
                # A read happens whatever the condition, so its index may not
                # rely on it.
                memo[u] = u
                continue
            waiting = [s for s in reversed(u.src) if s not in memo]
            if waiting:
                stack.extend(waiting)
                continue
            new = u.with_src(tuple(memo[s] for s in u.src))
            better = memo.get(new)
            better = self._step(new) if better is None else better
            if better is None or better is new:
                memo[new] = memo[u] = new
            elif better in memo:
                memo[new] = memo[u] = memo[better]
            else:
                stack.append(better)
                left -= 1
                if left == 0:
                    raise RuntimeError(
                        "the rewrite rules do not come to an end; the last one was "
                        f"{self._last!r}"
                    )
        return memo[root]

    def _step(self, u: UOp) -> UOp | None:
        """One rewrite at the top of ``u``, whose sources are simplified."""
        if u.op.kind != "elementwise":
            return None
        folded = fold(u)
        if folded is not None:
            return folded
        if u.op.commutative and u.src[0].op is Ops.CONST is not u.src[1].op:
            return UOp(u.op, (u.src[1], u.src[0]), u.arg)
        for rule in self._rules.get(u.op, ()):
            new = rule.apply(u, self.bounds)
            if new is not None:
                self._last = rule.name
                if self._trace:
                    print(f"rewrite {rule.name}: {u!r} -> {new!r}")
                return new
        return self._in_context(u) if u.op is Ops.WHERE else None

    def _in_context(self, u: UOp) -> UOp | None:
        """WHERE with branches simplified by what its condition tells."""
        cond, a, b = u.src
        if len(self._known) >= MAX_FACTS:
            return None
        yes, no = facts(cond, self.bounds)
        new = cond.where(self._under(yes)(a), self._under(no)(b))
        return None if new is u else new

    def _under(self, known: Facts) -> Simplifier:
        """A simplifier that takes more intervals for granted."""
        if not known:
            return self
        if known not in self._inner:
            if not self._branches_left[0]:
                return self
            self._branches_left[0] -= 1
            inner = Simplifier(self._all_rules, self._known + known)
            inner._branches_left = self._branches_left
            self._inner[known] = inner
        return self._inner[known]


def fold(u: UOp) -> UOp | None:
    """The constant that ``u`` is, if its op is exact and its sources constant."""
    if not u.op.exact or u.op.numpy is None:
        return None
    if any(s.op is not Ops.CONST for s in u.src):
        return None
    values = [np.asarray(s.value, s.dtype.numpy) for s in u.src]
    with np.errstate(all="ignore"):
        return UOp.const(u.op.compute(u, *values).item(), u.dtype)
