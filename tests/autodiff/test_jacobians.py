"""jacobian and hessian, in both modes, against what is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from uopc.autodiff import checkpoint, grad, hessian, hvp, jacobian, vmap
from uopc.tensor import Tensor

RNG = np.random.default_rng(5)
A, B = RNG.standard_normal((2, 3))
M = RNG.standard_normal((2, 3))
MODES = ["reverse", "forward"]


def T(data: Any) -> Tensor:
    return Tensor(np.asarray(data, np.float64))


def near(tensor: Tensor, right: Any) -> None:
    np.testing.assert_allclose(tensor.numpy(), right, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("mode", MODES)
def test_of_a_linear_map_it_is_the_matrix(mode: Any) -> None:
    near(jacobian(lambda x: T(M) @ x, mode=mode)(T(A)), M)


@pytest.mark.parametrize("mode", MODES)
def test_shapes_are_those_of_result_and_argument(mode: Any) -> None:
    j = jacobian(lambda x: (x * x).sum(1), mode=mode)(T(M))
    assert j.shape == (2, 2, 3)
    right = np.zeros((2, 2, 3))
    right[[0, 1], [0, 1]] = 2 * M
    near(j, right)
    near(jacobian(lambda x: x.sin(), mode=mode)(T(2.0)), np.cos(2))
    assert jacobian(lambda x: x.expand((0,)), mode=mode)(T([1.0])).shape == (0, 1)


@pytest.mark.parametrize("mode", MODES)
def test_nested_arguments_and_results(mode: Any) -> None:
    def f(p: dict[str, Tensor], c: Tensor) -> dict[str, Tensor]:
        return {"product": p["a"] * p["b"], "sum": p["a"].sum() * c}

    jp, jc = jacobian(f, (0, 1), mode)({"a": T(A), "b": T(B)}, T(2.0))["product"]
    near(jp["a"], np.diag(B))
    near(jp["b"], np.diag(A))
    near(jc, np.zeros(3))
    jp = jacobian(f, 0, mode)({"a": T(A), "b": T(B)}, T(2.0))["sum"]
    near(jp["a"], np.full(3, 2.0))
    near(jp["b"], np.zeros(3))


def test_both_modes_agree_on_a_network() -> None:
    def f(x: Tensor) -> Tensor:
        h = checkpoint(lambda x: (T(M) @ x).tanh())(x)
        return (h * h.exp()).softmax() + x.max()

    rows, columns = (jacobian(f, mode=mode)(T(A)) for mode in MODES)  # type: ignore[arg-type]
    near(rows, columns.numpy())


def test_the_hessian_times_a_vector_is_hvp() -> None:
    def f(x: Tensor) -> Tensor:
        return ((T(M) @ x).sin() * x.sum()).sum()

    h = hessian(f)(T(A))
    near(h, h.numpy().T)
    near(h @ T(B), hvp(f, (T(A),), (T(B),))[0].numpy())


def test_the_hessian_of_several_arguments() -> None:
    def f(a: Tensor, b: Tensor) -> Tensor:
        return (a * a * b).sum()

    (haa, hab), (hba, hbb) = hessian(f, (0, 1))(T(A), T(B))
    near(haa, np.diag(2 * B))
    near(hab, np.diag(2 * A))
    near(hba, np.diag(2 * A))
    near(hbb, np.zeros((3, 3)))


def test_they_compose() -> None:
    per_row = vmap(jacobian(lambda x: x * x))(T(M))
    near(per_row, np.stack([np.diag(2 * row) for row in M]))
    third = jacobian(hessian(lambda x: (x**3).sum()))(T(A))
    right = np.zeros((3, 3, 3))
    right[np.arange(3), np.arange(3), np.arange(3)] = 6
    near(third, right)
    near(grad(lambda x: jacobian(lambda y: y.sin())(x).sum())(T(A)), -np.sin(A))


def test_at_a_guarded_singularity() -> None:
    j = jacobian(lambda x: (x > 0.0).where(x.sqrt(), 0.0))
    near(j(T([0.0, 4.0])), [[0, 0], [0, 0.25]])


def test_a_mode_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="'reverse' or 'forward', not 'both'"):
        jacobian(lambda x: x, mode="both")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="jacobian: argument 0 has dtype i32"):
        jacobian(lambda x: x)(Tensor([1, 2]))
    with pytest.raises(ValueError, match="jacobian: argnums 1 with 1 positional"):
        jacobian(lambda x: x, 1)(T(A))
