"""What to say to someone who reaches for a name that Tensor does not have."""

from __future__ import annotations

import difflib

# Names that users of torch and NumPy try first, and what does the same here.
INSTEAD = {
    "add": "the + operator",
    "all": "(x == 0).max() == False, or x.numpy().all()",
    "amax": "max(axis)",
    "amin": "min(axis)",
    "any": "(x != 0).max(), or x.numpy().any()",
    "astype": "cast(dtype)",
    "bmm": "the @ operator",
    "chunk": "slices, x[begin:end]",
    "clamp": "x.maximum(low).minimum(high)",
    "clip": "x.maximum(low).minimum(high)",
    "clone": "the tensor itself: values never change under a reader",
    "contiguous": "nothing: views are copied where they must be",
    "copy": "the tensor itself: values never change under a reader",
    "cpu": "nothing: everything is on the CPU",
    "dim": "ndim",
    "div": "the / operator",
    "double": "cast(f64)",
    "float": "cast(f32)",
    "int": "cast(i32)",
    "long": "cast(i64)",
    "masked_fill": "mask.where(value, x)",
    "mm": "the @ operator",
    "mul": "the * operator",
    "pow": "the ** operator",
    "repeat": "expand(...) and reshape(...)",
    "size": "shape, or numel() for the number of elements",
    "split": "slices, x[begin:end]",
    "sub": "the - operator",
    "t": "T",
    "to": "cast(dtype)",
    "type": "cast(dtype)",
    "view": "reshape(...)",
    "zero_": "assign(...)",
}


def hint(name: str, known: list[str]) -> str:
    """The end of an AttributeError's message."""
    if name in INSTEAD:
        return f"; use {INSTEAD[name]}"
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
