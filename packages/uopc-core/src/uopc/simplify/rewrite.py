"""The one rewriter: bottom-up, to a fixed point, remembering every node."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable

import numpy as np

from uopc.config import get
from uopc.plugins import note_owner, registry
from uopc.simplify.bounds import Facts
from uopc.simplify.context import conjuncts, facts, positional
from uopc.simplify.memory import Steps, memory
from uopc.simplify.pattern import Rule, RuleTable
from uopc.simplify.rules import RULES
from uopc.simplify.text import infix
from uopc.uop import OpDef, Ops, UOp

MAX_REWRITES = 100_000  # of one call; a large kernel takes some thousands
MAX_TOGETHER = 8  # conditions that are compared with each other
MAX_ROUNDS = 2  # in which conditions that all hold simplify each other
MAX_FACTS = 40  # conditions inside conditions that are looked through
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

    def __init__(self, rules: Iterable[Rule] | None = None) -> None:
        known = memory()
        self.bounds = known.bounds
        self._root = self
        self._facts: Facts = ()
        self._gate: UOp | None = None
        self._inner: dict[tuple[Facts, UOp], Simplifier] = {}
        self._branches_left = [MAX_BRANCHES]  # one count, shared with the inner ones
        self._memo: dict[UOp, UOp] = {}
        self._told: dict[UOp, tuple[Facts, Facts]] = {}
        self._rules = _known_rules() if rules is None else RuleTable(rules)
        self._last = "fold"
        self._trace = get("UOPC_DEBUG") >= 4
        # To be shown, a rewrite has to be made.
        self._steps: Steps = {} if self._trace else known.steps(self._rules)

    def __call__(self, root: UOp) -> UOp:
        """The simplified ``root``."""
        memo, stack = self._memo, [root]
        left = MAX_REWRITES
        while stack:
            u = stack[-1]
            if u in memo:
                stack.pop()
                continue
            if u.op is Ops.INDEX and (self._gate is not None or len(u.src) == 3):
                new = self._read(u)
            elif waiting := [s for s in reversed(u.src) if s not in memo]:
                stack.extend(waiting)
                continue
            else:
                new = u.with_src(tuple(memo[s] for s in u.src))
            better = memo.get(new)
            if better is None:
                better = self._remembered(new)
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

    def _remembered(self, u: UOp) -> UOp | None:
        """`_step`, once for each node where it follows from the node alone.

        It does not under a condition, nor where conditions are looked into, of which
        there is a limit.
        """
        if self is not self._root or u.op is Ops.WHERE or u.op is Ops.AND:
            return self._step(u)
        steps = self._steps
        if u not in steps:
            steps[u] = self._step(u)
        return steps[u]

    def _step(self, u: UOp) -> UOp | None:
        """One rewrite at the top of ``u``, whose sources are simplified."""
        for name, rewrite in _built_in(u.op):
            new = rewrite(self, u)
            if new is not None:
                return self._done(name, u, new)
        for rule, orders in self._rules.candidates(u):
            try:
                new = rule.rewrite(u, orders, self.bounds)
            except Exception as error:
                note_owner(error, f"rewrite rule {rule.name!r}", "rewrites", rule)
                raise
            if new is not None:
                return self._done(rule.name, u, new)
        return None

    def _done(self, name: str, before: UOp, after: UOp) -> UOp:
        self._last = name
        if self._trace:
            print(f"rewrite {name}: {infix(before)} -> {infix(after)}")
        return after

    def _only_value(self, u: UOp) -> UOp | None:
        """The constant that an integer or bool is by the intervals."""
        if u.dtype.is_float or (u.op is Ops.RANGE and self is self._root):
            return None
        low, high = self.bounds(u)
        if low < high:
            return None
        return UOp.const(bool(low) if u.dtype.kind == "bool" else low, u.dtype)

    def _in_branches(self, u: UOp) -> UOp | None:
        """WHERE with branches simplified by what its condition tells."""
        cond, a, b = u.src
        yes, no = self._tells(cond)
        a = self._under(yes, cond)(a)
        b = self._under(no, cond.logical_not())(b)
        new = cond.where(a, b)
        if new is u:
            return None
        # They stay as they are: without the condition they might get longer again.
        self._memo[a], self._memo[b] = a, b
        return new

    def _together(self, u: UOp) -> UOp | None:
        """Conditions that all hold, each simplified by what the others tell."""
        if u.dtype.kind != "bool" or not positional(u):
            return None
        parts = list(dict.fromkeys(conjuncts(u)))
        if len(parts) > MAX_TOGETHER:
            return None
        for _ in range(MAX_ROUNDS):
            before = list(parts)
            for c in reversed(before):
                others = [p for p in parts if p is not c]
                if others:
                    rest = functools.reduce(UOp.__and__, others)
                    new = self._under(self._tells(rest)[0], rest)(c)
                    if new.op is Ops.CONST and not new.value:
                        return new
                    instead = [] if new.op is Ops.CONST else conjuncts(new)
                    i = parts.index(c)
                    parts[i : i + 1] = [p for p in instead if p not in others]
            if parts == before:
                break
        new = functools.reduce(UOp.__and__, parts)
        # As it is: by itself a part might become longer again.
        self._memo[new] = new
        return None if new is u else new

    def _tells(self, cond: UOp) -> tuple[Facts, Facts]:
        """What is known where ``cond`` holds, and where it does not."""
        if cond not in self._told:
            self._told[cond] = facts(cond, self.bounds)
        return self._told[cond]

    def _under(self, known: Facts, cond: UOp) -> Simplifier:
        """A simplifier that takes for granted what ``cond`` tells."""
        key = known, cond
        if not known or len(self._facts) >= MAX_FACTS:
            return self
        if key not in self._inner:
            if not self._branches_left[0]:
                return self
            self._branches_left[0] -= 1
            inner = copy.copy(self)
            inner._memo, inner._inner, inner._told = {}, {}, {}
            inner.bounds = self.bounds.given(known)
            inner._facts = self._facts + known
            inner._gate = cond if self._gate is None else self._gate & cond
            self._inner[key] = inner
        return self._inner[key]

    def _read(self, u: UOp) -> UOp:
        """A read with the index as short as the conditions around it allow.

        A read without a gate happens whatever the conditions. If they make its index
        shorter, and it could leave the buffer elsewhere, they become its gate. What
        a gated index looks like depends on its gate alone.
        """
        buffer, index, *gates = u.src
        root = self._root
        if not positional(index):
            return u
        if self._gate is not None:
            gates = [self._gate & gates[0] if gates else self._gate]
        gate = root(gates[0])
        if gate.op is Ops.CONST:
            return UOp(Ops.INDEX, (buffer, index, gate))
        new = root._under(root._tells(gate)[0], gate)(index)
        if self._gate is not None and new is index:
            return u
        low, high = root.bounds(new)
        safe = low >= 0 and high < buffer.arg.size
        if len(u.src) == 2 and safe and root(new) is new:
            return UOp(Ops.INDEX, (buffer, new))
        return UOp(Ops.INDEX, (buffer, new, gate))


def _known_rules() -> RuleTable:
    """The built-in rules and those of plugins."""
    added = tuple(registry().rewrites.get("simplify", ()))
    if added not in _tables:
        _tables[added] = RuleTable((*RULES, *added))
    return _tables[added]


_tables: dict[tuple[Rule, ...], RuleTable] = {}


def _constant_last(u: UOp) -> UOp | None:
    if u.src[0].op is Ops.CONST is not u.src[1].op:
        return UOp(u.op, (u.src[1], u.src[0]), u.arg)
    return None


def fold(u: UOp) -> UOp | None:
    """The constant that ``u`` is, if its op is exact and its sources constant."""
    if not u.op.exact or u.op.numpy is None:
        return None
    if any(s.op is not Ops.CONST for s in u.src):
        return None
    values = [np.asarray(s.value, s.dtype.numpy) for s in u.src]
    try:
        with np.errstate(all="ignore"):
            return UOp.const(u.op.compute(u, *values).item(), u.dtype)
    except Exception as error:
        note_owner(error, f"NumPy meaning of op {u.op.name!r}", "ops", u.op.name)
        raise


BuiltIn = Callable[[Simplifier, UOp], UOp | None]

# The rewrites that are no patterns, and the ops that they are for.
_BUILT_IN: tuple[tuple[str, BuiltIn, Callable[[OpDef], bool]], ...] = (
    ("fold", lambda self, u: fold(u), lambda op: op.exact),
    (
        "only-value",
        Simplifier._only_value,
        lambda op: op.kind == "elementwise" or op is Ops.RANGE,
    ),
    ("constant-last", lambda self, u: _constant_last(u), lambda op: op.commutative),
    ("in-branches", Simplifier._in_branches, lambda op: op is Ops.WHERE),
    ("conditions-together", Simplifier._together, lambda op: op is Ops.AND),
)


@functools.cache
def _built_in(op: OpDef) -> list[tuple[str, BuiltIn]]:
    return [(name, rewrite) for name, rewrite, suits in _BUILT_IN if suits(op)]
