"""What a newcomer tries first: it works, or the error says what to do."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uopc.dtype import boolean, f32, f64, i32
from uopc.simplify import Op, Rule, Simplifier, Var, rewrite
from uopc.tensor import Tensor
from uopc.tensor.missing import INSTEAD
from uopc.testing import buf
from uopc.uop import Ops, UOp

X = Tensor([1.0, 2.0])
ROWS = np.ones((2, 2), np.float32)


def parameter() -> Tensor:
    return Tensor([1.0, 2.0], requires_grad=True)


def subtract_in_place() -> None:
    w = parameter()
    w -= 1


MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "torch's name": (lambda: X.view(2, 1), AttributeError, "use reshape"),
    "a typo": (lambda: X.sofmax(), AttributeError, "did you mean 'softmax'"),
    "a typo of a constructor": (lambda: X.no_such_thing, AttributeError, "no 'no_such"),
    "text as exponent": (lambda: X ** "a", TypeError, "expected a Tensor or a number"),
    "text as operand": (lambda: X + "a", TypeError, r"add\(f32\[2\]\).*got str"),
    "labels as a list": (lambda: X.cross_entropy([0]), TypeError, "integer Tensor"),
    "iterating a scalar": (lambda: list(Tensor(3.0)), TypeError, "no axis to iterate"),
    "a seed of text": (lambda: Tensor.manual_seed("a"), TypeError, "integer"),
    "a fractional seed": (lambda: Tensor.manual_seed(1.5), TypeError, "integer"),
    "an unknown type": (lambda: X.cast("f33"), TypeError, "use one of uopc.dtype: f32"),
    "a parameter in place": (subtract_in_place, RuntimeError, "w.assign"),
    "an integer parameter": (
        lambda: Tensor([1], requires_grad=True),
        TypeError,
        r"i32\[1\] has no derivative",
    ),
    "cutting a result": (
        lambda: setattr(parameter() * 2, "requires_grad", False),
        RuntimeError,
        "use detach",
    ),
    "a bare tensor to backward": (
        lambda: parameter().sum().backward(parameter()),  # type: ignore[arg-type]
        TypeError,
        r"loss.backward\(\[w\]\)",
    ),
    "text to backward": (
        lambda: parameter().sum().backward(["w"]),  # type: ignore[list-item]
        TypeError,
        "list of tensors",
    ),
    "backward of a vector": (
        lambda: parameter().backward(),
        AssertionError,
        r"reduce it first, with .sum\(\)",
    ),
    "backward of an integer": (
        lambda: Tensor([1, 2]).sum().backward(),
        TypeError,
        "backward: this has dtype i32, which has no derivative",
    ),
    "a number to apply": (
        lambda: X.apply(lambda u, v: u + v, 4.0),  # type: ignore[arg-type]
        TypeError,
        "apply: argument 1 is a float; expected a Tensor",
    ),
    "a Tensor out of apply": (
        lambda: X.apply(lambda u: X),  # type: ignore[arg-type,return-value]
        TypeError,
        r"apply: the function gave Tensor\(.*; expected a UOp",
    ),
    "NumPy's sin": (lambda: np.sin(X), TypeError, r"np.sin takes no .*use t.sin\(\)"),  # type: ignore[call-overload]
    "NumPy's maximum": (lambda: np.maximum(X, 0), TypeError, r"t.maximum\(\.\.\.\)"),  # type: ignore[call-overload]
    "NumPy's name": (lambda: np.absolute(X), TypeError, r"use abs\(\)"),  # type: ignore[call-overload]
    "NumPy's add": (lambda: np.add(X, 1), TypeError, r"use the \+ operator"),  # type: ignore[call-overload]
    "NumPy's shift": (lambda: np.array([1]) << X, TypeError, "use the << operator"),
    "NumPy's sinh": (
        lambda: np.sinh(X),
        TypeError,
        r"no t.sinh; give it t.numpy\(\)",
    ),  # type: ignore[call-overload]
    "a reduction by a ufunc": (lambda: np.add.reduce(X), TypeError, "np.add takes no"),
    "an array @ a tensor": (lambda: ROWS @ X, TypeError, "got ndarray; wrap it in one"),
    "a tensor @ an array": (lambda: X @ ROWS, TypeError, "got ndarray; wrap it in one"),
    "a number @ a tensor": (lambda: 2 @ X, TypeError, "got int; wrap it in one"),  # type: ignore[operator]
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_explained(name: str) -> None:
    call, kind, words = MISTAKES[name]
    with pytest.raises(kind, match=words):
        call()


OVER_AXES = [
    name
    for name in dir(Tensor)
    if not name.startswith("_") and callable(getattr(Tensor, name))
    and "axis" in inspect.signature(getattr(Tensor, name)).parameters
]  # fmt: skip


@pytest.mark.parametrize("name", OVER_AXES)
def test_a_keyword_of_another_library_is_explained(name: str) -> None:
    method = getattr(Tensor(ROWS), name)
    with pytest.raises(TypeError, match=f"{name}: there is no .*'dim'; use 'axis'; it"):
        method(dim=0)
    if "keepdim" in inspect.signature(method).parameters:
        with pytest.raises(TypeError, match=r"'keepdims'; use 'keepdim'; it takes"):
            method(axis=0, keepdims=True)
    with pytest.raises(TypeError, match=r"no keyword 'xyz'; it takes .*axis"):
        method(xyz=1)


def test_methods_over_axes_are_found_and_keep_their_signatures() -> None:
    assert {"sum", "argmax", "softmax", "norm", "sort", "take"} <= {*OVER_AXES}
    assert Tensor.sum.__doc__ == "Sum; bool is counted as i32."
    assert [*inspect.signature(Tensor.sum).parameters] == ["self", "axis", "keepdim"]


OPERATORS = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv,
    operator.mod, operator.pow, operator.lt, operator.le, operator.gt, operator.ge,
    operator.eq, operator.ne,
]  # fmt: skip
BITS = [operator.and_, operator.or_, operator.xor]


@pytest.mark.parametrize("f", [*OPERATORS, *BITS], ids=lambda f: f.__name__)
def test_an_operator_with_numpy_on_the_left(f: Callable[[Any, Any], Any]) -> None:
    """An array is refused, a number of NumPy's is one."""
    x = Tensor([1, 2])
    with pytest.raises(
        TypeError, match=r"\(i32\[2\]\): wrap the NumPy array in a Tensor"
    ):
        f(np.array([3, 4]), x)
    for three in (np.int32(3), np.array(3)):
        found = f(three, x)
        assert isinstance(found, Tensor)
        assert found.tolist() == f(Tensor([3, 3]), x).tolist()


def test_no_hint_is_about_a_name_that_exists() -> None:
    assert not [name for name in INSTEAD if name in dir(Tensor)]


@pytest.mark.parametrize(
    ("what", "dtype"),
    [(f64, f64), ("f64", f64), (np.float32, f32), (np.dtype("i4"), i32),
     (float, f32), (int, i32), (bool, boolean)],
)  # fmt: skip
def test_element_types_by_any_name(what: Any, dtype: Any) -> None:
    assert Tensor([1, 0], dtype=what).dtype is dtype
    assert X.cast(what).dtype is dtype


def test_one_element_formats_as_a_number() -> None:
    assert f"{X.sum():.3f}" == "3.000"
    assert f"{X}" == str(X)
    assert [t.item() for t in X] == [1.0, 2.0]
    Tensor.manual_seed(np.int64(3))


def test_comparisons_of_parameters_require_no_gradient() -> None:
    w = parameter()
    assert not (w > 0).requires_grad and (w * 2).requires_grad


def test_updates_by_hand_do_not_pile_up() -> None:
    """Parameters that were assigned are computed with whatever is computed next."""
    w, other = parameter(), Tensor([1.0, 1.0])
    for _ in range(5):
        w.assign(w - other * 0.5)
        total = (w * w).sum()
        total.item()
        assert "lazy" not in repr(w)
    assert w.tolist() == [-1.5, -0.5]


# -- rules that a plugin gets wrong -------------------------------------------


def simplify_with(rule: Rule) -> UOp:
    return Simplifier([rule])(UOp(Ops.SQRT, (UOp(Ops.INDEX, (buf(0, 4), INDEX)),)))


INDEX = UOp.const(0, i32)
x = Var("x")


def test_a_rule_that_changes_the_dtype_is_named() -> None:
    rule = Rule("widen", Op(Ops.SQRT, x), lambda x: x.cast(f64))
    with pytest.raises(ValueError, match=r"'widen' turned f32\[\] into f64\[\]"):
        simplify_with(rule)


def test_rules_without_an_end_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite, "MAX_REWRITES", 1000)
    rule = Rule("negate", Op(Ops.SQRT, x), lambda x: (-x).sqrt())
    with pytest.raises(RuntimeError, match="'negate'"):
        simplify_with(rule)


def test_a_rule_may_be_any_callable() -> None:
    class Build:
        def __call__(self, x: UOp) -> UOp:
            return x

    assert simplify_with(Rule("drop", Op(Ops.SQRT, x), Build())).op is Ops.INDEX
