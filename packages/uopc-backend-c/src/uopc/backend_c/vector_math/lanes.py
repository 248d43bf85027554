"""What the functions on vectors are made of, and how their texts are put together.

A text has the fields of a vector helper: ``{t}`` for the vector's type, ``{m}`` and
``{u}`` for signed and unsigned integers as wide, ``{w}`` for the number of lanes. What
differs between f32 and f64 is written ``@NAME@``, and `fill` puts it in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Helpers = dict[str, tuple[str, ...]]
"""Definitions in the order in which C needs them, by the element's type."""

INLINE = "static inline __attribute__((always_inline)) "

SPLAT = (
    INLINE
    + """\
{t} uopc_splat_{t}(double c) {{
  {t} zero = {{0}};
  return (__typeof__(zero[0]))c - zero;
}}
"""
)
"""A constant in every lane."""

# gcc makes a blend of this, clang also a minimum where one fits.
SELECT = (
    INLINE
    + """\
{t} uopc_select_{t}({m} mask, {t} a, {t} b) {{
  return ({t})((mask & ({m})a) | (~mask & ({m})b));
}}
"""
)
"""``a`` where the mask is set, else ``b``."""

# gcc does not see a minimum in the last line.
MIN = (
    INLINE
    + """\
{t} uopc_vmin_{t}({t} a, {t} b) {{
#if defined(__AVX512F__) && !defined(__clang__) && @SIZE@*{w} == 64
  return __builtin_ia32_min@KIND@512_mask(a, b, a, -1, 4);
#elif defined(__AVX__) && !defined(__clang__) && @SIZE@*{w} == 32
  return __builtin_ia32_min@KIND@256(a, b);
#elif defined(__SSE2__) && !defined(__clang__) && @SIZE@*{w} == 16
  return __builtin_ia32_min@KIND@(a, b);
#else
  return uopc_select_{t}(({m})(a < b), a, b);
#endif
}}
"""
)
"""The smaller one; ``b`` if one is NaN."""

MAX = MIN.replace("min", "max").replace("a < b", "a > b")
"""The larger one; ``b`` if one is NaN."""

STEP = (
    INLINE
    + """\
{t} uopc_step_{t}({t} p, {t} x, double c) {{
  return uopc_fma_{t}(p, x, uopc_splat_{t}(c));
}}
"""
)
"""``p*x+c``."""

ANY = (
    INLINE
    + """\
int uopc_any_{t}({m} mask) {{
  typedef long long words __attribute__((vector_size(@SIZE@*{w})));
  words v = (words)mask;
#if defined(__AVX__) && @SIZE@*{w} == 32
  return !__builtin_ia32_ptestz256(v, v);
#elif defined(__AVX512F__) && @SIZE@*{w} == 64 && !defined(__clang__)
  return __builtin_ia32_ptestmq512(v, v, -1);
#else
  long long any = 0;
  for (int i = 0; i < @SIZE@*{w}/8; i++) any |= v[i];
  return any != 0;
#endif
}}
"""
)
"""Whether the mask is set in some lane."""


def fill(text: str, constants: Mapping[str, str]) -> str:
    """The text with each ``@NAME@`` replaced.

    ``@SIZE@`` is the bytes of an element, ``@KIND@`` what x86 calls it.
    """
    for name, value in constants.items():
        text = text.replace(f"@{name}@", value)
    return text


def pairs(p: str, x: str, square: str, coefficients: Sequence[str]) -> str:
    """Statements that leave a polynomial in ``p``, in half as many steps as `horner`.

    Pairs of terms are independent of each other (second-order Horner: Knuth, *The Art
    of Computer Programming* 4.6.4). That counts where a processor cannot look far
    enough ahead to compute several vectors at once.
    """
    low = list(reversed(coefficients))
    terms = [
        f"uopc_step_{{t}}(uopc_splat_{{t}}({b}), {x}, {a})"
        for a, b in zip(low[::2], low[1::2], strict=False)
    ]
    if len(low) % 2:
        terms.append(f"uopc_splat_{{t}}({low[-1]})")
    *others, first = terms
    lines = [f"  {{t}} {p} = {first};"]
    lines += [f"  {p} = uopc_fma_{{t}}({p}, {square}, {t});" for t in reversed(others)]
    return "\n".join(lines)


def horner(x: str, coefficients: Sequence[str]) -> str:
    """Statements that leave a polynomial in ``p``; the highest power comes first."""
    first, *others = coefficients
    lines = [f"  {{t}} p = uopc_splat_{{t}}({first});"]
    lines += [f"  p = uopc_step_{{t}}(p, {x}, {c});" for c in others]
    return "\n".join(lines)
