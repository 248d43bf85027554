"""What to say to someone who reaches for a name that Tensor does not have."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

# Names that users of torch and NumPy try first, and what does the same here.
INSTEAD = {
    "absolute": "abs()",
    "add": "the + operator",
    "amax": "max(axis)",
    "amin": "min(axis)",
    "at": "t[key] = value",
    "bitwise_and": "the & operator",
    "bitwise_or": "the | operator",
    "bitwise_xor": "the ^ operator",
    "bmm": "the @ operator",
    "clone": "t[...], another tensor of the same value, or detach()",
    "contiguous": "nothing: views are copied where they must be",
    "copy": "t[...], another tensor of the same value, or detach()",
    "copy_": "t[...] = value, or assign(value)",
    "cpu": "nothing: everything is on the CPU",
    "dim": "ndim",
    "div": "the / operator",
    "divide": "the / operator",
    "double": "cast(f64)",
    "equal": "the == operator",
    "fill": "t[...] = value",
    "fill_": "t[...] = value",
    "float": "cast(f32)",
    "floor_divide": "the // operator",
    "greater": "the > operator",
    "greater_equal": "the >= operator",
    "index_copy_": "t[..., index] = value",
    "index_fill_": "t[..., index] = value",
    "index_put_": "t[index] = value",
    "int": "cast(i32)",
    "invert": "the ~ operator",
    "left_shift": "the << operator",
    "less": "the < operator",
    "less_equal": "the <= operator",
    "long": "cast(i64)",
    "masked_fill_": "t[mask] = value",
    "mm": "the @ operator",
    "mul": "the * operator",
    "multiply": "the * operator",
    "neg": "the - operator",
    "negative": "the - operator",
    "not_equal": "the != operator",
    "pow": "the ** operator",
    "power": "the ** operator",
    "remainder": "the % operator",
    "right_shift": "the >> operator",
    "size": "shape, or numel() for the number of elements",
    "sub": "the - operator",
    "subtract": "the - operator",
    "t": "T",
    "type": "cast(dtype)",
    "view": "reshape(...)",
    "zero_": "t[...] = 0",
}

# Keywords of torch and NumPy, and what they are called here.
KEYWORDS = {
    "axes": "axis",
    "ddof": "correction",
    "dim": "axis",
    "dims": "axis",
    "keep_dims": "keepdim",
    "keepdims": "keepdim",
    "ord": "p",
}


def no_keyword(method: str, name: str, known: Sequence[str]) -> str:
    """The message about a keyword that a method does not have."""
    near = [KEYWORDS[name]] if name in KEYWORDS else []
    near += difflib.get_close_matches(name, known, n=1)
    use = next((f"use {n!r}; " for n in near if n in known), "")
    return f"{method}: there is no keyword {name!r}; {use}it takes {', '.join(known)}"


def hint(name: str, known: list[str]) -> str:
    """The end of an AttributeError's message."""
    if name in INSTEAD:
        return f"; use {INSTEAD[name]}"
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def no_ufunc(name: str, operands: int, known: list[str]) -> str:
    """The message about a function of NumPy that was given a Tensor."""
    if name in known:
        instead = f"; use t.{name}({'' if operands == 1 else '...'}), or"
    elif name in INSTEAD:
        instead = f"; use {INSTEAD[name]}, or"
    else:
        instead = f", and there is no t.{name};"
    return f"np.{name} takes no Tensor{instead} give it t.numpy(), a mere value"
