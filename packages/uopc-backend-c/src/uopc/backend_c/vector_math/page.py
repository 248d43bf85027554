"""The page that `uopc ulp` writes."""

from __future__ import annotations

import platform
from collections.abc import Sequence

from uopc.backend_c import cpu
from uopc.backend_c.target import current_target
from uopc.backend_c.toolchain import find_compiler
from uopc.backend_c.vector_math.measure import Measurement

_INTRODUCTION = """\
# Functions on vectors

Above `UOPC_OPT=0` the C backend has texts of its own for these functions, on vectors;
a scalar is one lane of a vector. This is how far they are from the truth, in units in
the last place (ulp) of the true value: 0.5 is correct rounding. Allowed are 1 in f32
and 2 in f64. Subnormal results count as any others; an infinity where the true value is
finite counts as the number after the largest; a NaN or a sign of zero that should not
be there, or is missing, counts as infinitely wrong.

`uopc ulp` measured this on {processor}, with
{compiler}, vectors of {bits} bits,
{fma} multiply-add. The reference is the mathematics library, {library}.

Where multiply-add is an instruction, every compiler and every width gives the same bits
in each lane. Elsewhere (x86-64 without FMA) f32 takes the way through f64, and f64
rounds the product too: other bits, within the same bounds.
"""
_F32 = """\
## f32

"2^32" are all inputs there are. The reference is the library's function in f64.
"""
_F64 = """\
## f64

Inputs are bit patterns, numbers in [-800, 800] and [-4, 4], small ones, what is around
1, multiples of pi / 2 (up to 600,000) and their neighbours, and a list of special ones.
The reference is the library's function in long double.
"""
_NOTES = """\
## Exact results

exp and exp2 of 0 are 1, exp2 of integers is exact, and so is log2 of powers of 2. log,
log2 and log1p are -infinity at their pole and NaN beyond it. sin, tanh and log1p keep
the sign of a zero, and tanh reaches 1 and -1. Infinities overflow or vanish as the
functions do, sin and cos of them are NaN, and NaN stays NaN.

## Large arguments

sin and cos of numbers beyond 2^17 (f32) and 2^20 (f64) are those of the system's
mathematics library in f64, lane by lane: slow, and as exact as that library.
"""


def ulp_page(found: Sequence[Measurement]) -> str:
    """The page in Markdown."""
    target = current_target()
    head = _INTRODUCTION.format(
        compiler=find_compiler().version,
        processor=cpu.name(),
        bits=8 * target.vector_bytes,
        fma="with" if target.fma else "without",
        library=" ".join(platform.libc_ver()).strip() or "of the system",
    )
    lines = [head]
    for element, title in (("f32", _F32), ("f64", _F64)):
        rows = [m for m in found if m.element == element]
        if rows:
            lines += [title, *_table(rows), ""]
    return "\n".join([*lines, _NOTES])


def _table(rows: Sequence[Measurement]) -> list[str]:
    lines = [
        "| function | ulp | worst input | inputs | seconds |",
        "| --- | --- | --- | --- | --- |",
    ]
    for m in rows:
        inputs = "2^32" if m.inputs > 1 << 32 else f"{m.inputs:,}"
        cells = [f"`{m.name}`", f"{m.error:.3f}", m.worst, inputs, f"{m.seconds:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines
