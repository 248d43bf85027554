"""The Tensor class: its constructors and ``backward``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from typing import Literal as OneOf

from uopc import composite
from uopc.composite import full, iota, zeros_like
from uopc.dtype import DType, as_dtype, f32, f64, i32
from uopc.runtime.capture import note_change
from uopc.runtime.values import cut, held, live_tensors, realize_all
from uopc.tensor.base import Base
from uopc.tensor.keywords import explain_keywords
from uopc.tensor.movement import _shape_of
from uopc.tensor.pieces import Pieces
from uopc.tensor.random import default as generator
from uopc.uop import Literal, Ops, UOp, substitute, toposort

__all__ = ["Tensor", "realize_all"]


# What Python calls for an operator of NumPy with the tensor on the right.
_REFLECTED = {
    "add": "__radd__", "subtract": "__rsub__", "multiply": "__rmul__",
    "divide": "__rtruediv__", "floor_divide": "__rfloordiv__",
    "remainder": "__rmod__", "power": "__rpow__", "matmul": "__rmatmul__",
    "bitwise_and": "__rand__", "bitwise_or": "__ror__", "bitwise_xor": "__rxor__",
    "less": "__gt__", "less_equal": "__ge__", "greater": "__lt__",
    "greater_equal": "__le__", "equal": "__eq__", "not_equal": "__ne__",
}  # fmt: skip


@explain_keywords
class Tensor(Pieces):
    """A lazy array of numbers.

    Operations build a graph; ``numpy()``, ``item()`` or ``realize()`` compute
    it. NumPy arrays are copied and keep their dtype, Python floats become f32
    and integers i32. Values never change under a reader: ``assign`` gives a
    tensor a new value for later readers only.

    Args:
        data: a number, nested lists, a NumPy array, or a UOp.
        dtype: convert to this element type.
        requires_grad: let ``backward`` leave a gradient here.
    """

    __slots__ = ()

    if not TYPE_CHECKING:  # type checkers would take any name for one that exists

        def __getattr__(self, name: str) -> Any:
            from uopc.tensor.missing import hint  # not at import, for start-up's sake

            known = [n for n in dir(type(self)) if not n.startswith("_")]
            raise AttributeError(f"Tensor has no {name!r}{hint(name, known)}")

    def __rmatmul__(self, other: Any) -> Tensor:
        got = type(other).__name__
        raise TypeError(f"matmul: expected a Tensor, got {got}; wrap it in one")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kw: Any) -> Any:
        """What NumPy calls for ``array + tensor``, and for ``np.sin(tensor)``.

        Operators with NumPy's on the left are those of this class. Its functions are
        refused: no gradient would flow through what they return.
        """
        name = _REFLECTED.get(ufunc.__name__)
        plain = method == "__call__" and not kw and len(inputs) == 2
        if name is None or not plain or isinstance(inputs[0], Base):
            from uopc.tensor.missing import no_ufunc  # for start-up's sake

            raise TypeError(no_ufunc(ufunc.__name__, ufunc.nin, dir(type(self))))
        return getattr(self, name)(inputs[0])

    @classmethod
    def zeros(cls, *shape: Any, dtype: Any = f32, **kwargs: Any) -> Tensor:
        """All zeros."""
        return cls(full(_shape_of(shape), 0, as_dtype(dtype)), **kwargs)

    @classmethod
    def ones(cls, *shape: Any, dtype: Any = f32, **kwargs: Any) -> Tensor:
        """All ones."""
        return cls(full(_shape_of(shape), 1, as_dtype(dtype)), **kwargs)

    @classmethod
    def full(cls, shape: Sequence[int], value: float, dtype: Any = None) -> Tensor:
        """One value everywhere; the dtype of a bare number by default."""
        wanted = cls(value).dtype if dtype is None else as_dtype(dtype)
        return cls(full(shape, value, wanted))

    @classmethod
    def arange(
        cls,
        start: float,
        stop: float | None = None,
        step: float = 1,
        dtype: Any = None,
    ) -> Tensor:
        """Evenly spaced numbers from ``start`` (0 if alone) up to ``stop``."""
        if stop is None:
            start, stop = 0, start
        if step == 0:
            raise ValueError("arange: the step must not be 0")
        n = max(0, int(-(-(stop - start) // step)))
        whole = all(isinstance(v, int) for v in (start, stop, step))
        wanted = as_dtype(dtype or (i32 if whole else f32))
        if whole and not wanted.is_float and n:
            # The sums below wrap silently, so the ends are checked here.
            for end in (start, start + (n - 1) * step):
                Literal.of(end, wanted)
        # Of a half type each number is rounded once, at the end.
        place = iota(n).cast(f64 if wanted.is_half else wanted)
        if step != 1:
            place = place * step
        return cls((place + start if start else place).cast(wanted))

    @classmethod
    def linspace(
        cls, start: float, stop: float, count: int = 50, dtype: Any = f32
    ) -> Tensor:
        """``count`` numbers from ``start`` to ``stop``, both included, evenly apart.

        Computed in f64 and rounded once, so that the ends are exact. torch has no
        default for ``count``; NumPy's is the same.
        """
        if count < 0:
            raise ValueError(f"linspace: expected a count from 0, got {count}")
        place = iota(count).cast(f64)
        step = (stop - start) / max(count - 1, 1)
        ahead = place * step + float(start)
        behind = (place - float(count - 1)) * step + float(stop)
        middle = place < count / 2  # the ends are those that were asked for
        return cls(middle.where(ahead, behind).cast(as_dtype(dtype)))

    @classmethod
    def eye(cls, rows: int, columns: int | None = None, dtype: Any = f32) -> Tensor:
        """Ones where row and column have the same number, else zeros."""
        places = composite.one_hot(iota(rows), rows if columns is None else columns)
        return cls(places.cast(as_dtype(dtype)))

    @classmethod
    def meshgrid(
        cls, *axes: Any, indexing: OneOf["ij", "xy"] = "ij"
    ) -> tuple[Tensor, ...]:
        """Of vectors, arrays with the value of each at all places of their grid.

        With ``indexing="xy"`` the first two axes are swapped, which is NumPy's default;
        torch's is "ij".
        """
        if any(not isinstance(t, Tensor) or t.ndim > 1 for t in axes):
            raise TypeError("meshgrid: expected tensors of one axis")
        if indexing not in ("ij", "xy"):
            raise ValueError(f"meshgrid: indexing is 'ij' or 'xy', not {indexing!r}")
        shape = [t.numel() for t in axes]
        found = []
        for i, t in enumerate(axes):
            alone = [n if i == at else 1 for at, n in enumerate(shape)]
            wide = t.reshape(alone).expand(shape)
            swap = indexing == "xy" and len(axes) > 1
            found.append(wide.transpose(0, 1) if swap else wide)
        return tuple(found)

    @classmethod
    def rand(cls, *shape: Any, dtype: Any = f32, **kwargs: Any) -> Tensor:
        """Uniform in [0, 1), of a float type."""
        wanted = _float_dtype("rand", dtype)
        return cls(generator.uniform(_shape_of(shape), wanted), **kwargs)

    @classmethod
    def randn(cls, *shape: Any, dtype: Any = f32, **kwargs: Any) -> Tensor:
        """Normal with mean 0 and variance 1, of a float type."""
        wanted = _float_dtype("randn", dtype)
        return cls(generator.normal(_shape_of(shape), wanted), **kwargs)

    @staticmethod
    def manual_seed(seed: int) -> None:
        """Start the stream of random numbers over."""
        generator.seed(seed)

    @staticmethod
    def realize_all(tensors: Sequence[Tensor]) -> None:
        """Compute several tensors together: one plan, one native call."""
        realize_all(tensors)

    def backward(
        self,
        params: Sequence[Tensor] | None = None,
        unused: OneOf["zero", "none", "error"] = "zero",
    ) -> Tensor:
        """Add d(self)/d(p) to ``p.grad`` for each p, and return this tensor.

        Gradients are lazy tensors. Without ``params``, every leaf that this
        tensor depends on and that has ``requires_grad`` gets one. Works before
        and after the value has been read.

        Args:
            params: tensors of float types, leaves or not; one given twice counts once.
            unused: what a parameter gets that this tensor does not depend on:
                ``"zero"``, zeros; ``"none"``, nothing; ``"error"``, a RuntimeError.

        Raises AssertionError unless this is a scalar, TypeError if it or a parameter is
        of an integer type, RuntimeError if no gradient engine is installed or if a
        parameter has been given a new value since this graph was built.
        """
        if unused not in ("zero", "none", "error"):
            raise ValueError(
                f"backward: unused is 'zero', 'none' or 'error', not {unused!r}"
            )
        from uopc.plugins import current  # not at import, for start-up's sake

        _require_loss(self)
        root = self.uop if self._graph is None else self._graph
        params = _leaves(root) if params is None else _parameters(params)
        params = list({id(p): p for p in params}.values())  # tied: counted once
        nodes = [p._nodes() for p in params]
        root = _with_history(root, {n for group in nodes for n in group})
        _require_graph(root)
        grads: list[UOp] | None = current().hook.uopc_gradient(
            root=root, seed=None, targets=[n for group in nodes for n in group]
        )
        if grads is None:
            raise RuntimeError(
                "backward needs a gradient engine: pip install uopc-autodiff"
                f"{current().failure_note()}"
            )
        if not params:
            raise RuntimeError(
                "backward: this depends on no tensor with requires_grad=True; set it "
                "on the parameters, or pass them: loss.backward([w])"
            )
        each = iter(grads)
        found: list[tuple[Tensor, Tensor]] = []
        for i, (p, group) in enumerate(zip(params, nodes, strict=True)):
            parts = [(next(each), zeros_like(n)) for n in group]
            flowing = [g for g, zero in parts if g is not zero]
            if not flowing:
                _require_reachable(root, i, p, unused == "error")
                flowing = [parts[0][1]]
            if unused != "none" or flowing != [parts[0][1]]:
                found.append((p, Tensor(sum(flowing[1:], flowing[0]))))
        for p, g in found:
            note_change(p)
            p.grad = g if p.grad is None else p.grad + g
        return self


def _require_loss(t: Tensor) -> None:
    """Raise an error for what ``backward`` cannot start from."""
    if t.shape != ():
        raise AssertionError(
            f"backward needs a scalar, got shape {t.shape}; reduce it first, "
            "with .sum() or .mean()"
        )
    if not t.dtype.is_float:
        raise TypeError(
            f"backward: this has dtype {t.dtype}, which has no derivative; "
            "compute it in a float type"
        )


def _require_graph(root: UOp) -> None:
    """Raise an error where a gradient would end at a result of a jit."""
    if cut and not cut.isdisjoint(_carriers(root)):
        raise RuntimeError(
            "backward: this depends on a result of a jit, which keeps no graph that "
            "leads to its parameters; call backward inside the function, or detach() "
            "the result"
        )


def _float_dtype(what: str, dtype: Any) -> DType:
    wanted = as_dtype(dtype)
    if not wanted.is_float:
        raise TypeError(f"{what}: expected a float type, got {wanted}; cast the result")
    return wanted


def _carriers(root: UOp) -> set[UOp]:
    """The nodes that ``root`` came from and that no detach hides from gradients."""
    behind = _graphs_behind_values()

    def sources(u: UOp) -> tuple[UOp, ...]:
        if u in behind:
            return (*u.src, behind[u])
        return () if u.op is Ops.STAGE and u.arg == "detach" else u.src

    return set(toposort([root], sources))


def _parameters(params: Any) -> list[Tensor]:
    """The parameters as a list, or a TypeError."""
    given = [] if isinstance(params, Base) else list(params)
    if isinstance(params, Base) or any(not isinstance(p, Tensor) for p in given):
        raise TypeError(
            "backward takes a list of tensors, as in loss.backward([w]), or nothing; "
            f"got {params!r}"
        )
    for i, p in enumerate(given):
        if not p.dtype.is_float:
            raise TypeError(
                f"backward: parameter {i} has dtype {p.dtype}, which has no "
                "derivative; cast it to a float type before it is used"
            )
    return given


def _has_only_old(p: Tensor, reached: set[UOp], slots: set[int]) -> bool:
    """Whether ``reached`` holds the parameter, but with an older value only."""
    now = held(p.uop)
    home = p._home if now is None else now
    if home is None or any(n in reached for n in p._nodes()):
        return False
    return home.arg.slot in slots


def _slots(reached: set[UOp]) -> set[int]:
    return {u.arg.slot for u in reached if u.op is Ops.BUFFER}


def _leaves(root: UOp) -> list[Tensor]:
    """The leaves that want a gradient and that ``root`` depends on."""
    reached = _carriers(root)
    slots = _slots(reached)
    return [
        t
        for t in live_tensors()
        if isinstance(t, Tensor) and t._leaf and t.requires_grad
        and (any(n in reached for n in t._nodes()) or _has_only_old(t, reached, slots))
    ]  # fmt: skip


def _graphs_behind_values() -> dict[UOp, UOp]:
    """What computed values of live tensors were computed from."""
    return {t.uop: t._graph for t in live_tensors() if t._graph is not None}


def _with_history(root: UOp, targets: set[UOp]) -> UOp:
    """``root`` with computed values replaced by the graphs they came from.

    Only where such a graph leads to a target: a value that was read in the
    middle of a computation must not hide what it was computed from.
    """
    behind = _graphs_behind_values()

    def sources(u: UOp) -> tuple[UOp, ...]:
        return (behind[u],) if u in behind else u.src

    leads: dict[UOp, bool] = {}
    for u in toposort([root], sources):
        leads[u] = u in targets or any(leads[s] for s in sources(u))
    found = {u: g for u, g in behind.items() if leads.get(u) and leads[g]}
    while any(u in found for u in toposort([root])):
        (root,) = substitute([root], found)
    return root


def _require_reachable(root: UOp, i: int, p: Tensor, always: bool) -> None:
    """A gradient of zeros must be the truth, not the sign of a cut graph."""
    if always:
        raise RuntimeError(
            f"backward: this does not depend on parameter {i}, "
            f"{p.dtype}{list(p.shape)}; leave it out, or pass unused='zero'"
        )
    if not p.requires_grad:
        raise RuntimeError(
            f"backward: parameter {i}, {p.dtype}{list(p.shape)}, does not require a "
            "gradient, and the loss does not depend on it; set requires_grad=True "
            "before it is used"
        )
    reached = _carriers(root)
    if _has_only_old(p, reached, _slots(reached)):
        raise RuntimeError(
            f"backward: parameter {i}, {p.dtype}{list(p.shape)}, has been given a new "
            "value since this graph was built; compute the loss again first"
        )
