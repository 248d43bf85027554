"""The element types and how two of them combine (the array API's promotion)."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from uopc.dtype.bf16 import bf16_from_bits, bf16_to_bits, round_bf16

Array = np.ndarray[Any, Any]
Kind = Literal["bool", "uint", "int", "float", "void"]


class DType:
    """One element type. There is one object per type; compare with ``is``.

    Attributes:
        name: how the text form spells it.
        kind: the family it belongs to.
        bits: its width.
        numpy: the NumPy dtype of its values. NumPy has no bf16: its values are f32
            arrays that hold nothing but bf16 numbers.
        storage: the NumPy dtype of its memory; for bf16, the bits as u16.
        is_float: True for floating-point types.
        is_int: True for signed and unsigned integers, not for bool.
        is_half: True for f16 and bf16, whose arithmetic is done in f32 and rounded.
        min: smallest value of an integer or bool type.
        max: largest value of an integer or bool type.
    """

    # Not a dataclass: making one takes longer than all of this module (see
    # benchmarks/importing.py).
    __slots__ = ("bits", "is_float", "is_half", "is_int", "kind", "max", "min", "name",
                 "numpy", "storage")  # fmt: skip
    name: str
    kind: Kind
    bits: int
    numpy: np.dtype[Any]
    storage: np.dtype[Any]
    is_float: bool
    is_int: bool
    is_half: bool
    min: int
    max: int

    def __init__(
        self, name: str, kind: Kind, bits: int, numpy: str, storage: str = ""
    ) -> None:
        signed = kind == "int"
        facts = {
            "name": name,
            "kind": kind,
            "bits": bits,
            "numpy": np.dtype(numpy),
            "storage": np.dtype(storage or numpy),
            "is_float": kind == "float",
            "is_int": kind in ("int", "uint"),
            "is_half": kind == "float" and bits == 16,
            "min": -(1 << (bits - 1)) if signed else 0,
            "max": (1 << (bits - signed)) - 1,
        }
        for fact, value in facts.items():
            object.__setattr__(self, fact, value)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a DType is immutable; cannot set {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a DType is immutable; cannot delete {name!r}")

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return max(1, self.bits // 8)

    @property
    def wide(self) -> DType:
        """The type that arithmetic on this one is done in: f32 for half types."""
        return f32 if self.is_half else self

    def round(self, x: Array) -> Array:
        """Float values as values of this half type, to nearest, ties to even.

        Values of any other type are left alone.
        """
        if not self.is_half:
            return x
        if self is bf16:
            return round_bf16(x)
        with np.errstate(all="ignore"):
            return np.asarray(x, self.numpy)

    def load(self, memory: Array) -> Array:
        """The values in an array of ``storage``."""
        return memory if self.storage == self.numpy else bf16_from_bits(memory)

    def store(self, values: Array) -> Array:
        """An array of ``storage`` that holds ``values``."""
        return values if self.storage == self.numpy else bf16_to_bits(values)

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return (_by_name, (self.name,))


f16 = DType("f16", "float", 16, "float16")
bf16 = DType("bf16", "float", 16, "float32", storage="uint16")
f32 = DType("f32", "float", 32, "float32")
f64 = DType("f64", "float", 64, "float64")
i8 = DType("i8", "int", 8, "int8")
i16 = DType("i16", "int", 16, "int16")
i32 = DType("i32", "int", 32, "int32")
i64 = DType("i64", "int", 64, "int64")
u8 = DType("u8", "uint", 8, "uint8")
u16 = DType("u16", "uint", 16, "uint16")
u32 = DType("u32", "uint", 32, "uint32")
u64 = DType("u64", "uint", 64, "uint64")
boolean = DType("bool", "bool", 1, "bool")
# The type of nodes that are effects rather than values (STORE, END, SINK).
void = DType("void", "void", 0, "V1")

DTYPES: dict[str, DType] = {
    d.name: d
    for d in (f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, boolean)
}
_NUMPY: dict[np.dtype[Any], DType] = {
    d.numpy: d for d in DTYPES.values() if d is not bf16
}


def _by_name(name: str) -> DType:
    return void if name == "void" else DTYPES[name]


def from_numpy(dtype: Any) -> DType:
    """The element type for a NumPy dtype, whatever its byte order.

    Raises TypeError for a dtype that has no counterpart.
    """
    wanted = np.dtype(dtype).newbyteorder("=")
    if wanted.name == "bfloat16":  # of the package ml_dtypes
        return bf16
    if wanted not in _NUMPY:
        known = ", ".join(map(str, _NUMPY))
        raise TypeError(f"no element type for NumPy dtype {wanted}; known: {known}")
    return _NUMPY[wanted]


def as_dtype(what: Any) -> DType:
    """The element type that ``what`` names.

    Takes an element type, its name, a NumPy dtype, or Python's bool (bool), int
    (i32) and float (f32). Raises TypeError for anything else.
    """
    if isinstance(what, DType):
        return what
    python = {bool: boolean, int: i32, float: f32}
    if isinstance(what, type) and what in python:
        return python[what]
    if isinstance(what, str):
        what = "bf16" if what == "bfloat16" else what
        if what in DTYPES:
            return DTYPES[what]
    try:
        return from_numpy(what)
    except TypeError:
        names = ", ".join(DTYPES)
        raise TypeError(
            f"{what!r} is no element type; use one of uopc.dtype: {names}"
        ) from None


def promote(a: DType, b: DType) -> DType:
    """The type of ``a op b`` for two tensors.

    Integers follow the array API; an integer or bool with a float takes the
    float's type; f16 with bf16, which hold different numbers, gives f32. u64
    with a signed integer has no common type and raises TypeError.
    """
    if a is b:
        return a
    if a.kind == "bool" or b.kind == "bool":
        return b if a.kind == "bool" else a
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.is_half and b.is_half:
        return f32
    wide, narrow = (a, b) if a.bits >= b.bits else (b, a)
    if a.kind == b.kind:
        return wide
    # One is signed, the other not: the result must hold both ranges.
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    for candidate in (i16, i32, i64):
        if candidate.bits > unsigned.bits:
            return candidate
    raise TypeError(
        f"{wide.name} and {narrow.name} have no common integer type; "
        "cast one of them first"
    )


def promote_scalar(dtype: DType, value: bool | int | float) -> DType:
    """The type of ``tensor op value`` for a Python scalar, which is weak."""
    if isinstance(value, bool) or dtype.is_float:
        return dtype
    if isinstance(value, int):
        return i32 if dtype.kind == "bool" else dtype
    return f32
