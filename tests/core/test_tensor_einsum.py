"""einsum and diagonals against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from uopc.dtype import f16, f32, i32
from uopc.tensor import Tensor

RNG = np.random.default_rng(0)
X, Y, Z = (RNG.standard_normal(shape) for shape in ((3, 4, 4), (4, 5), (5, 4)))

EQUATIONS = [
    ("ab,bc->ac", Y, Z), ("ab , bc -> ca", Y, Z), ("ab,bc", Y, Z), ("ba,cb", Y, Z),
    ("abb->a", X), ("abb->ab", X), ("abb", X), ("abc->cab", X), ("abc->", X),
    ("ab,ba->", Y, Z), ("abc,cd->abd", X, Y), ("abb,bd->d", X, Y),
    ("ab,cd->dbca", Y, Z),
    ("ij,jk,kl->il", Y, Z, Y), ("i,i,i->i", Y[0], Y[1], Y[2]), (",ab->ba", Y[0, 0], Y),
    ("...bc,cd->...bd", X, Y), ("...ii->...", X), ("...ii->i...", X), ("...", X),
    ("a...,...->a...", X, Y[:, :4]), ("...a,...a->...", X, X[:1]),
    ("aaa->a", X[:, :3, :3]),
]  # fmt: skip


@pytest.mark.parametrize("case", EQUATIONS, ids=lambda c: c[0])
def test_as_numpy(case) -> None:
    equation, *arrays = case
    got = Tensor.einsum(equation, *map(Tensor, arrays))
    right = np.einsum(equation, *arrays)
    assert got.shape == right.shape
    np.testing.assert_allclose(got.numpy(), right, rtol=1e-12, atol=1e-13)


def test_types_are_promoted() -> None:
    n, mask = Tensor([[1, 2], [3, 4]]), Tensor([[True, False], [True, True]])
    assert Tensor.einsum("ii", mask).item() == 2
    assert Tensor.einsum("ij,jk->ik", mask, n).tolist() == [[1, 2], [4, 6]]
    assert Tensor.einsum("ii", mask).dtype is i32
    assert Tensor.einsum("ij,ij", n, Tensor([[0.5, 1.0], [1.0, 1.0]])).dtype is f32
    half = Tensor(np.full((2, 5000), 1 / 3), dtype=f16)
    total = Tensor.einsum("ij->i", half)
    assert total.dtype is f16
    assert total.tolist() == half.sum(1).tolist()


BAD = [
    ("ab,bc->ac", (Y,), "2 terms for 1 operands"),
    ("a->a", (Y,), "'a' does not name 2 axes"),
    ("abc", (Y,), "'abc' does not name 2 axes"),
    ("ab->ac", (Y,), "the result has 'c', which no operand has"),
    ("ab->aa", (Y,), "the result has 'a' twice"),
    ("a1->a", (Y,), "found '1'"),
    ("ab,cb->ac", (Y, Z), "axes 'b' have lengths 5 and 4"),
    ("aa->a", (Y,), "axes 'a' have lengths 4 and 5"),
    ("...,...->...", (Y, Z), "do not broadcast"),
]


@pytest.mark.parametrize(("equation", "arrays", "words"), BAD)
def test_what_does_not_fit_is_said(equation, arrays, words) -> None:
    with pytest.raises(ValueError, match=words) as error:
        Tensor.einsum(equation, *map(Tensor, arrays))
    assert equation in str(error.value)
    assert "f64[4, 5]" in str(error.value)


def test_no_operand() -> None:
    with pytest.raises(ValueError, match="at least one operand"):
        Tensor.einsum("->")


@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (5, 2), (0, 3), (1, 1)])
def test_diagonals(shape) -> None:
    x = RNG.standard_normal(shape)
    np.testing.assert_array_equal(Tensor(x).diagonal().numpy(), np.diagonal(x))
    x = RNG.standard_normal((shape[0], 2, shape[1]))
    for a, b in ((0, 2), (-1, 0)):
        got, right = Tensor(x).diagonal(a, b).numpy(), np.diagonal(x, 0, a, b)
        np.testing.assert_array_equal(got, right)
    with pytest.raises(ValueError, match="twice"):
        Tensor(x).diagonal(1, 1)
