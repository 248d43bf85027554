"""What transforms refuse: the message names the transform and says what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uopc.autodiff import (
    checkpoint,
    custom_vjp,
    grad,
    gradient,
    hessian,
    hvp,
    jacobian,
    jvp,
    linearize,
    tangents,
    value_and_grad,
    vjp,
    vmap,
)
from uopc.config import overriding
from uopc.dtype import f32, i32
from uopc.plugins import PluginHost, hookimpl, use
from uopc.tensor import Tensor
from uopc.uop import OpDef, UOp, elementwise

Make = Callable[..., Any]

X, N = Tensor([1.0, 2.0]), Tensor([1, 2])


def f(x: Any) -> Tensor:
    return Tensor(2.0) * x.square().sum()


def whole(x: Tensor) -> Tensor:
    return x.cast(i32)


def refused(kind: type[Exception], call: Callable[[], Any], *words: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


# -- when the transform is made ---------------------------------------------------

WITH_ARGNUMS = [grad, value_and_grad, jacobian, hessian]


@pytest.mark.parametrize("make", [*WITH_ARGNUMS, vmap], ids=lambda m: m.__name__)
def test_what_is_no_function(make: Make) -> None:
    refused(TypeError, lambda: make(3), f"{make.__name__} takes a function, not 3")
    refused(TypeError, lambda: make(X), f"{make.__name__} takes a function, not Tensor")


@pytest.mark.parametrize("make", [vjp, linearize], ids=lambda m: m.__name__)
def test_what_is_no_function_but_called_at_once(make: Make) -> None:
    refused(TypeError, lambda: make(3, X), f"{make.__name__} takes a function, not 3")


@pytest.mark.parametrize("make", [jvp, hvp], ids=lambda m: m.__name__)
def test_what_is_no_function_in_forward_mode(make: Make) -> None:
    message = f"{make.__name__} takes a function, not 3"
    refused(TypeError, lambda: make(3, (X,), (X,)), message)


@pytest.mark.parametrize("make", WITH_ARGNUMS, ids=lambda m: m.__name__)
@pytest.mark.parametrize(
    "argnums", ["0", 0.0, None, True, (0, "1"), [0.5], {0}, np.array([0])], ids=repr
)
def test_argnums_that_are_no_positions(make: Make, argnums: Any) -> None:
    message = f"{make.__name__}: argnums is {argnums!r}; expected an integer or a tuple"
    refused(TypeError, lambda: make(f, argnums=argnums), message)


@pytest.mark.parametrize("argnums", [np.int64(0), [0], range(1)], ids=repr)
def test_argnums_of_other_types_that_are_positions(argnums: Any) -> None:
    found = grad(f, argnums=argnums)(X)
    found = found if isinstance(found, Tensor) else found[0]
    assert found.tolist() == [4.0, 8.0]


# -- arguments --------------------------------------------------------------------


@pytest.mark.parametrize("make", [jvp, hvp], ids=lambda m: m.__name__)
@pytest.mark.parametrize("given", [(X, X), (X, (X,)), ((X,), X)], ids=["xx", "x", "v"])
def test_primals_and_directions_without_tuples(make: Make, given: Any) -> None:
    def never(*args: Any) -> Tensor:
        raise AssertionError("it must not be called")

    name = make.__name__
    message = f"{name}: primals and directions are tuples, as in {name}(f, (x,), (v,))"
    refused(TypeError, lambda: make(never, *given), message, "not a Tensor")


@pytest.mark.parametrize("make", WITH_ARGNUMS, ids=lambda m: m.__name__)
def test_a_constant_can_be_left_out_where_there_are_argnums(make: Make) -> None:
    name = make.__name__
    refused(TypeError, lambda: make(f)(N), f"{name}: arg", "leave it out of argnums")
    refused(
        TypeError,
        lambda: make(f)({"n": N}),
        f"{name}: argument 0['n'] has dtype i32",
        "pass it outside of the structure",
    )


FIXED: dict[str, Callable[[Any], Any]] = {
    "vjp": lambda n: vjp(f, n),
    "linearize": lambda n: linearize(f, n),
    "jvp": lambda n: jvp(f, (n,), (n,)),
    "hvp": lambda n: hvp(f, (n,), (n,)),
}


@pytest.mark.parametrize("name", FIXED)
@pytest.mark.parametrize("argument", [N, [N], "text"], ids=["bare", "nested", "text"])
def test_a_constant_is_closed_over_where_there_are_none(
    name: str, argument: Any
) -> None:
    with pytest.raises(TypeError, match=f"^{name}: .* or close over it$") as caught:
        FIXED[name](argument)
    assert "argnums" not in str(caught.value)


# -- results ----------------------------------------------------------------------

CALLED: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "vmap": lambda f: vmap(f)(X),
    "checkpoint": lambda f: checkpoint(f)(X),
    "jacobian": lambda f: jacobian(f)(X),
    "hessian": lambda f: hessian(f)(X),
    "vjp": lambda f: vjp(f, X),
    "jvp": lambda f: jvp(f, (X,), (X,)),
    "hvp": lambda f: hvp(f, (X,), (X,)),
    "linearize": lambda f: linearize(f, X),
    "grad": lambda f: grad(f)(X),
    "value_and_grad": lambda f: value_and_grad(f)(X),
}


@pytest.mark.parametrize("name", CALLED)
def test_a_result_that_is_no_tensor_is_told_of_has_aux_where_it_exists(
    name: str,
) -> None:
    with pytest.raises(TypeError, match=f"^{name}: the result.* is a float") as caught:
        CALLED[name](lambda x: 1.0)
    assert ("has_aux" in str(caught.value)) == (name in ("grad", "value_and_grad"))


def test_has_aux_is_no_advice_to_who_has_it() -> None:
    with pytest.raises(TypeError, match=r"is a float; expected a Tensor$"):
        grad(lambda x: (1.0, None), has_aux=True)(X)


def test_has_aux_is_no_advice_for_a_custom_vjp() -> None:
    given = custom_vjp(lambda x: 1.0)
    given.defvjp(lambda x: (1.0, None), lambda r, g: (g,))
    with pytest.raises(TypeError, match=r"is a float; expected a Tensor$"):
        given(X)


@pytest.mark.parametrize("name", ["grad", "value_and_grad", "hessian", "hvp"])
@pytest.mark.parametrize(
    "result, shown",
    [(None, "None"), ((), "()"), ({}, "{}"), (X, "f32[2]"), ((X, X), "f32[2], f32[2]")],
    ids=["none", "empty", "dict", "vector", "pair"],
)
def test_a_result_that_is_not_one_scalar(name: str, result: Any, shown: str) -> None:
    with pytest.raises(ValueError) as caught:
        CALLED[name](lambda x: result)
    message = f"{name} needs a function with one scalar result, not {shown}"
    assert str(caught.value).split(";")[0] == message
    assert ("reduce it" in str(caught.value)) == ("f32" in shown)


@pytest.mark.parametrize("name", ["grad", "value_and_grad", "hessian", "hvp"])
def test_an_integer_scalar_has_no_derivative(name: str) -> None:
    message = f"{name}: the result of the function has dtype i32, which has no der"
    refused(TypeError, lambda: CALLED[name](lambda x: whole(x).sum()), message)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_a_jacobian_of_integers(mode: Any) -> None:
    message = "jacobian: the result of the function has dtype i32"
    refused(TypeError, lambda: jacobian(whole, mode=mode)(X), message)
    nested = jacobian(lambda x: {"a": x, "n": whole(x)}, mode=mode)
    refused(TypeError, lambda: nested(X), "jacobian: the result['n'] of the function")


# -- what rules of plugins return ------------------------------------------------

ODD = OpDef(
    "odd", "elementwise", 1, elementwise(("float",)), "x.", numpy=lambda u, x: x
)


class Odd:
    """A plugin whose rules return what they were told to."""

    def __init__(self, result: Any) -> None:
        self.result = result

    @hookimpl
    def uopc_register_ops(self, register: Any) -> None:
        register(ODD)

    @hookimpl
    def uopc_register_vjps(self, register: Any) -> None:
        register(ODD, lambda u, g: (self.result,))

    @hookimpl
    def uopc_register_jvps(self, register: Any) -> None:
        register(ODD, lambda u, tangents: self.result)


RESULTS = [1.0, "text", (1.0,), X]


@pytest.mark.parametrize("result", RESULTS, ids=["number", "text", "tuple", "Tensor"])
def test_a_rule_that_returns_no_node(result: Any) -> None:
    u = UOp.param(0, f32, (2,))
    with use(PluginHost()) as host:
        host.register_module(Odd(result), "odd one")
        root = UOp(ODD, (u,))
        for call, words in [
            (
                lambda: gradient(root, [u]),
                f"the gradient rule of odd: the gradient of source 0 is {result!r}; "
                "expected a UOp or None",
            ),
            (
                lambda: tangents([root], [u], [u]),
                f"the forward-mode rule of odd: the tangent is {result!r}; expected a "
                "UOp, None or NotImplemented",
            ),
        ]:
            with pytest.raises(TypeError) as caught:
                call()
            assert str(caught.value) == words
            assert "plugin 'odd one'" in caught.value.__notes__[0]


def test_a_seed_that_is_no_node() -> None:
    u = UOp.param(0, f32, (2,))
    seed: Any = 3.0
    refused(TypeError, lambda: gradient(u, [u], seed), "seed is 3.0; expected a UOp")


# -- lowering that does not end -----------------------------------------------------

SAME = OpDef("same", "elementwise", 1, elementwise(("float",)), "x.", lower=lambda u: u)
MORE = OpDef(
    "more", "elementwise", 1, elementwise(("float",)), "x.",
    lower=lambda u: UOp(LESS, (u.src[0] + 1.0,)),
)  # fmt: skip
LESS = OpDef(
    "less", "elementwise", 1, elementwise(("float",)), "x.",
    lower=lambda u: UOp(MORE, (u.src[0] - 1.0,)),
)  # fmt: skip
GROWN = OpDef(
    "grown", "reduce", 1, lambda op, src, arg: (None, src[0].shape, src[0].dtype), "x.",
    lower=lambda u: UOp(GROWN, (u.src[0] + 1.0,)),
)  # fmt: skip


class Endless:
    """Ops whose lower leads back to them."""

    @hookimpl
    def uopc_register_ops(self, register: Any) -> None:
        for op in (SAME, MORE, LESS, GROWN):
            register(op)


def run_on(backend: str, f: Callable[[Tensor], Tensor]) -> Tensor:
    with overriding(UOPC_BACKEND=backend):
        return f(X).realize()


WAYS: dict[str, Callable[[Callable[[Tensor], Tensor]], Any]] = {
    "grad": lambda f: grad(lambda x: f(x).sum())(X),
    "jvp": lambda f: jvp(f, (X,), (X,)),
    "interp": lambda f: run_on("interp", f),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("op", [SAME, MORE, GROWN], ids=lambda op: op.name)
def test_lowering_that_does_not_end_names_the_op(way: str, op: OpDef) -> None:
    with use(PluginHost()) as host:
        host.register_module(Endless(), "endless one")
        with pytest.raises(RuntimeError, match="does not come to an end") as caught:
            WAYS[way](lambda x: x.apply(lambda u: UOp(op, (u,))))
    assert type(caught.value) is RuntimeError
    name = str(caught.value).split(":")[0]
    assert name in ({"more", "less"} if op is MORE else {op.name})
    (note,) = caught.value.__notes__
    assert note == f"raised by the 'lower' of op {name!r} (plugin 'endless one')"


def test_a_batch_through_lowering_that_does_not_end() -> None:
    with use(PluginHost()) as host:
        host.register_module(Endless(), "endless one")
        with pytest.raises(RuntimeError, match=r"^grown: lowering it does not"):
            vmap(lambda x: x.apply(lambda u: UOp(GROWN, (u,))))(X)
