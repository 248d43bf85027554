"""parameters(x): which tensors it finds, and in which order."""

from __future__ import annotations

import collections
import types
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

from uopc.nn import Embedding, Linear, parameters
from uopc.tensor import Tensor


def leaf(value: float = 0.0) -> Tensor:
    return Tensor(np.array([value], np.float32), requires_grad=True)


A, B, C = leaf(1), leaf(2), leaf(3)


class Plain:
    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


class Slotted:
    __slots__ = ("first", "second", "unset")

    def __init__(self, first: Any, second: Any) -> None:
        self.second, self.first = second, first


class SlottedChild(Slotted):
    __slots__ = ("__dict__", "__third")

    def __init__(self, first: Any, second: Any, third: Any) -> None:
        super().__init__(first, second)
        self.__third = third


class OneSlot:
    __slots__ = "only"

    def __init__(self, only: Any) -> None:
        self.only = only


class Chain(list[Any]):
    def __init__(self, items: list[Any], head: Tensor) -> None:
        super().__init__(items)
        self.head = head


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Config:
    name: str
    weight: Tensor
    rest: list[Tensor] = field(default_factory=list)


def names(found: list[Tensor]) -> str:
    known = {id(A): "A", id(B): "B", id(C): "C"}
    return "".join(known[id(t)] for t in found)


@pytest.mark.parametrize(
    ("holder", "wanted"),
    [
        (A, "A"),
        ([A, B], "AB"),
        ([B, A], "BA"),
        ((A, [B, (C,)]), "ABC"),
        ({"z": C, "a": A}, "CA"),
        (Plain(z=B, a=A), "BA"),
        (Plain(layers=[Plain(w=A), Plain(w=B)], head=C), "ABC"),
        (Plain(layers={"one": [A], "two": (B, {"x": C})}), "ABC"),
        (Pair(C, Pair(A, B)), "CAB"),
        (Config("x", A, [B, C]), "ABC"),
        (collections.OrderedDict(b=B, a=A), "BA"),
        (collections.deque([A, B]), "AB"),
        (types.SimpleNamespace(w=A), "A"),
        (Slotted(A, B), "AB"),
        (SlottedChild(A, [B], C), "ABC"),
        (OneSlot([A]), "A"),
        (Chain([A, B], C), "ABC"),
        ({A}, "A"),
        (types.MappingProxyType({"b": B, "a": A}), "BA"),
        ([A, B, A], "AB"),
        ([A, [B, A], {"again": B}, C], "ABC"),
        ([1, 2.5, 1j, "text", b"bytes", None, True, Plain, len, np.ones(3), A], "A"),
        ([], ""),
        ("no parameters here", ""),
        (None, ""),
    ],
)
def test_order_and_uniqueness(holder: Any, wanted: str) -> None:
    assert names(parameters(holder)) == wanted


def test_only_leaves_that_want_gradients() -> None:
    plain, want = Tensor(np.ones(2, np.float32)), leaf()
    computed = want * 2
    assert computed.requires_grad
    found = parameters([plain, want, computed, want.detach()])
    assert [id(t) for t in found] == [id(want)]


def test_a_shared_layer_counts_once() -> None:
    shared = Linear(2, 2)
    found = parameters(Plain(encoder=shared, decoder=Plain(inner=shared)))
    assert [id(t) for t in found] == [id(shared.weight), id(shared.bias)]


def test_a_tied_weight_counts_once() -> None:
    table, head = Embedding(3, 4), Linear(4, 3)
    head.weight = table.weight
    found = parameters([table, head])
    assert [id(t) for t in found] == [id(table.weight), id(head.bias)]


def test_equal_values_are_two_parameters() -> None:
    assert len(parameters([leaf(1), leaf(1)])) == 2


def test_cycles_end() -> None:
    loop: list[Any] = [A]
    loop.append(loop)
    parent, child = Plain(w=B), Plain(w=C)
    parent.child, child.parent = child, parent
    assert names(parameters([loop, parent])) == "ABC"


def test_any_depth() -> None:
    nested: Any = [A]
    for _ in range(50_000):
        nested = [nested]
    assert names(parameters(nested)) == "A"
    while nested is not A:  # free it without recursion
        nested = nested[0]


def test_modules_are_not_searched() -> None:
    module = types.ModuleType("numbers_of_mine")
    module.weight = A  # type: ignore[attr-defined]
    assert names(parameters([module, B])) == "B"


def test_a_layer_in_order_of_its_attributes() -> None:
    layer = Linear(2, 3)
    assert [t.shape for t in parameters(layer)] == [(3, 2), (3,)]
    assert [t.shape for t in parameters(Linear(2, 3, bias=False))] == [(3, 2)]
