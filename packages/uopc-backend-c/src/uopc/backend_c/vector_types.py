"""The vector types of generated C, and the small functions that come with them.

``f32x8`` is a vector of eight floats, and ``f32x8_mem`` the same in memory, at any
address and beside any type. Half types are vectors of their bits, as they are to C in
general. A bool is a mask: a signed integer, 0 or -1, as wide as what was compared.
"""

from __future__ import annotations

from collections.abc import Callable

from uopc.backend_c.streams import stream_helper
from uopc.backend_c.types import INLINE, NO_ABI, c_type
from uopc.dtype import DTYPES, DType, u16

MASKS = {bits: DTYPES[f"i{bits}"] for bits in (8, 16, 32, 64)}
UNSIGNED = {bits: DTYPES[f"u{bits}"] for bits in (8, 16, 32, 64)}


def lanes_held(extent: int) -> int:
    """Lanes of the vector that a loop of ``extent`` rounds is computed in."""
    return max(2, 1 << (extent - 1).bit_length())


class VectorTypes:
    """Names of types and helpers of vectors, each defined when it is first named."""

    def __init__(self, define: Callable[[str], None]) -> None:
        self._define = define
        self._known: set[tuple[DType, int]] = set()

    def name(self, dtype: DType, lanes: int) -> str:
        """The type of ``lanes`` elements, which are not bool."""
        element = u16 if dtype.is_half else dtype
        name = f"{element.name}x{lanes}"
        if (element, lanes) not in self._known:
            self._known.add((element, lanes))
            size = f"vector_size({element.itemsize * lanes})"
            loose = f"{size}, aligned({element.itemsize}), may_alias"
            c = c_type(element)
            self._define(NO_ABI)
            self._define(
                f"typedef {c} {name} __attribute__(({size}));\n"
                f"typedef {c} {name}_mem __attribute__(({loose}));\n"
            )
        return name

    def mask(self, bits: int, lanes: int) -> str:
        """The type of truth values beside elements of ``bits``."""
        return self.name(MASKS[bits], lanes)

    def splat(self, dtype: DType, lanes: int, text: str) -> str:
        """One scalar in all lanes."""
        t = self.name(dtype, lanes)
        self._define(
            f"{INLINE}{t} uopc_all_{t}({self._element(dtype)} x) {{\n"
            f"  return ({t}){{{', '.join('x' * lanes)}}};\n}}\n"
        )
        return f"uopc_all_{t}({text})"

    def load(self, dtype: DType, lanes: int, count: int, pointer: str) -> str:
        """The ``count`` elements that a pointer points to, and zeros."""
        t = self.name(dtype, lanes)
        if count == lanes:
            return f"*({t}_mem*){pointer}"
        values = ", ".join(f"p[{i}]" for i in range(count))
        name, c = f"uopc_load{count}_{t}", self._element(dtype)
        self._define(
            f"{INLINE}{t} {name}(const void* place) {{\n"
            f"  const {c}* p = place;\n"
            f"  return ({t}){{{values}}};\n}}\n"
        )
        return f"{name}({pointer})"

    def store(
        self, dtype: DType, lanes: int, count: int, pointer: str, value: str
    ) -> str:
        """The statement that writes the first ``count`` lanes."""
        t = self.name(dtype, lanes)
        if count == lanes:
            return f"*({t}_mem*){pointer} = {value};"
        lines = "".join(f"  p[{i}] = v[{i}];\n" for i in range(count))
        name, c = f"uopc_store{count}_{t}", self._element(dtype)
        self._define(
            f"{INLINE}void {name}(void* place, {t} v) {{\n"
            f"  {c}* p = place;\n{lines}}}\n"
        )
        return f"{name}({pointer}, {value});"

    def stream(self, dtype: DType, lanes: int, pointer: str, value: str) -> str:
        """The statement that writes a vector past the cache."""
        t, size = self.name(dtype, lanes), dtype.itemsize * lanes
        if size < 16:
            return self.store(dtype, lanes, lanes, pointer, value)
        self._define(stream_helper(t, size))
        return f"uopc_stream_{t}({pointer}, {value});"

    def _element(self, dtype: DType) -> str:
        return c_type(u16 if dtype.is_half else dtype)
