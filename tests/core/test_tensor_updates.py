"""What an update leaves alone: readers, views, aliases, old names, parameters."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uopc.dtype import f32
from uopc.runtime.values import held
from uopc.tensor import Tensor, realize_all
from uopc.uop import Ops, UOp, toposort

Array = np.ndarray[Any, Any]


def leaf() -> Tensor:
    return Tensor(np.arange(4, dtype=np.float32))


def computed() -> Tensor:
    return leaf() * 1.0


def read() -> Tensor:
    return (leaf() * 1.0).realize()


def assigned() -> Tensor:
    return leaf().assign(leaf() * 1.0)


def constant() -> Tensor:
    return Tensor.arange(4).cast(f32)


MADE = [leaf, computed, read, assigned, constant]
OLD = [0, 1, 2, 3]


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("early", [False, True])
def test_nothing_built_before_notices(made: Callable[[], Tensor], early: bool) -> None:
    t = made()
    readers = {
        "view": t[1:], "turned": t.flip(), "alias": t.detach(), "same": t[...],
        "shape": t.reshape(4), "column": t.reshape(4, 1), "node": Tensor(t.uop),
        "double": t * 2, "sum": t.sum(), "copy": copy.copy(t),
    }  # fmt: skip
    if early:
        realize_all(readers.values())
    for step in range(3):
        t[1] = 10.0 + step
        t[Tensor([0, 0])] = Tensor([5.0, 6.0 + step])
        if step:
            t.realize()
    assert t.tolist() == [8, 12, 2, 3]
    want: dict[str, Any] = {
        "view": OLD[1:], "turned": OLD[::-1], "alias": OLD, "same": OLD, "shape": OLD,
        "column": [[n] for n in OLD], "node": OLD, "double": [0, 2, 4, 6], "sum": 6,
        "copy": OLD,
    }  # fmt: skip
    assert {name: r.tolist() for name, r in readers.items()} == want


@pytest.mark.parametrize("made", MADE)
def test_a_view_is_no_alias(made: Callable[[], Tensor]) -> None:
    t = made()
    row = t[1:3]
    row[...] = -1.0
    assert (t.tolist(), row.tolist()) == (OLD, [-1, -1])
    t[1:3] = row
    row[0] = 9.0
    assert t.tolist() == [0, -1, -1, 3]


def test_a_tensor_is_written_to_itself() -> None:
    t = leaf()
    t[:2] = t[2:]
    assert t.tolist() == [2, 3, 2, 3]
    t[::-1] = t
    assert t.tolist() == [3, 2, 3, 2]
    t[1:] = t[:-1]
    assert t.tolist() == [3, 3, 2, 3]
    t[Tensor([3, 2, 1, 0])] = t
    assert t.tolist() == [3, 2, 3, 3]


def test_a_loop_of_updates_and_readers() -> None:
    """What each step saw of the array is what NumPy's array was at that time."""
    t, x = Tensor(np.zeros((3, 4), np.float32)), np.zeros((3, 4), np.float32)
    seen, expected = [], []
    place = Tensor(0)
    for step in range(12):
        t[place] += step
        x[step % 3] += step
        t[:, step % 4] *= 2
        x[:, step % 4] *= 2
        seen.append(t.sum(1))
        expected.append(x.sum(1))
        place.assign((place + 1) % 3)
        if step % 5 == 4:
            realize_all([t, place])
    np.testing.assert_array_equal(Tensor.stack(seen).numpy(), np.stack(expected))


def test_data_stays_a_leaf_and_keeps_its_home() -> None:
    t = leaf()
    home = held(t.uop)
    assert home is not None
    for step in range(3):
        t[step] = 7.0
        assert t.is_leaf and not t.requires_grad
        t.realize()
        now = held(t.uop)
        assert now is not None and now is not home
        assert now.arg.slot == home.arg.slot
    t.requires_grad = True
    assert t.is_leaf


UPDATES: dict[str, Callable[[Tensor], Any]] = {
    "element": lambda t: (1, 2.0),
    "slice": lambda t: (slice(0, 4, 2), Tensor([5.0, 6.0])),
    "one place of data": lambda t: (Tensor(-1), Tensor(3.0)),
    "data": lambda t: (Tensor([1, 1]), Tensor([5.0, 6.0])),
    "mask": lambda t: (t > 1, 0.0),
    "mask and slice": lambda t: ((None, t > 1), 0.0),
}


@pytest.mark.parametrize("name", UPDATES)
def test_the_old_value_is_read_element_by_element(name: str) -> None:
    """So that a plan may write the new value over the old one."""
    t = leaf()
    old = t.uop
    while old.op is Ops.RESHAPE:
        old = old.src[0]
    t[UPDATES[name](t)[0]] = UPDATES[name](t)[1]
    moved: set[UOp] = set()
    for u in reversed(toposort([t.uop])):
        assert u is not old or u not in moved
        if u in moved or (u.op.kind != "elementwise" and u.op is not Ops.RESHAPE):
            moved.update(u.src)


def test_a_whole_slice_forgets_the_old_value() -> None:
    t = leaf()
    old = held(t.uop)
    t[...] = 3.0
    t[::-1] = Tensor(OLD)
    assert old not in toposort([t.uop])
    assert t.tolist() == OLD[::-1]


# -- updates by operators -----------------------------------------------------

Update = Callable[[Any, Any], Any]
# Python's own `x += v` and its like.
FLOATS: dict[Update, Any] = {
    operator.iadd: 2.0, operator.isub: 2.0, operator.imul: 2.0, operator.itruediv: 2.0,
    operator.ifloordiv: 2.0, operator.imod: 2.0, operator.ipow: 2.0,
    operator.imatmul: np.float32([[1, 2], [3, 4]]),
}  # fmt: skip
BITS: dict[Update, Any] = {
    operator.iand: 6, operator.ior: 9, operator.ixor: 5, operator.ilshift: 1,
    operator.irshift: 1,
}  # fmt: skip
OPERATORS = {**FLOATS, **BITS}


def square(update: Update) -> Array:
    return np.array([[3, 4], [5, 6]], np.float32 if update in FLOATS else np.uint8)


@pytest.mark.parametrize("update", OPERATORS, ids=lambda f: f.__name__)
def test_an_operator_binds_its_name_to_another_tensor(update: Update) -> None:
    value, x = OPERATORS[update], square(update)
    given = Tensor(value) if isinstance(value, np.ndarray) else value
    t = Tensor(x)
    view, double = t[0], t + t
    new = update(t, given)
    assert new is not t
    np.testing.assert_array_equal(new.numpy(), update(x.copy(), value))
    np.testing.assert_array_equal(t.numpy(), x)
    np.testing.assert_array_equal(view.numpy(), x[0])
    np.testing.assert_array_equal(double.numpy(), x + x)
    if update in FLOATS:
        w = Tensor(x, requires_grad=True)
        with pytest.raises(RuntimeError, match="a parameter is not changed in place"):
            update(w, given)
        assert w.requires_grad and w.is_leaf


@pytest.mark.parametrize(
    "update", [f for f in OPERATORS if f is not operator.imatmul],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_an_operator_on_elements_keeps_the_tensor(update: Update) -> None:
    value, x = OPERATORS[update], square(update)
    t, old = Tensor(x), x.copy()
    double = t + t
    for key in ((0, slice(1, None)), ([1, 1],), (slice(None),)):
        t[key] = update(t[key], value)  # what Python makes of t[key] += value
        x[key] = update(x[key], value)
    np.testing.assert_array_equal(t.numpy(), x)
    np.testing.assert_array_equal(double.numpy(), old + old)


def test_the_statements_themselves() -> None:
    t = alias = Tensor([1.0, 2.0, 3.0])
    t[1:] += 10.0
    t[[0, 0]] -= Tensor([1.0, 2.0])  # the last one wins, as in NumPy
    t[...] *= 2.0
    assert alias is t
    assert t.tolist() == [-2, 24, 26]


def test_a_parameter_is_not_changed_but_assigned() -> None:
    w = Tensor(np.float32([1, 2, 3]), requires_grad=True)
    with pytest.raises(
        RuntimeError, match=r"setitem\(f32\[3\], f32\[\]\): a param.*w.assign"
    ):
        w[0] = 5.0
    with pytest.raises(RuntimeError, match="a parameter is not changed in place"):
        w[0] += 5.0
    c = w.detach()
    c[0] = 5.0
    assert w.tolist() == [1, 2, 3]
    w.assign(c)
    assert w.tolist() == [5, 2, 3]
    assert w.is_leaf and w.requires_grad
