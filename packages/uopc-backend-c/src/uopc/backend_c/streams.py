"""Stores that bypass the cache, where the machine has them."""

from __future__ import annotations

from uopc.backend_c.types import INLINE

# Of a vector that is not aligned there is no such store. gcc has a builtin for each
# size, clang one for all.
_STREAM = """\
typedef long long uopc_words{size} __attribute__((vector_size({size}), may_alias));
{inline}void uopc_stream_{t}(void* p, {t} v) {{
  if ((unsigned long long)p % {size}) *({t}_mem*)p = v;
#if defined(__clang__)
  else __builtin_nontemporal_store((uopc_words{size})v, (uopc_words{size}*)p);
#elif defined(__SSE2__) && {size} == 16
  else __builtin_ia32_movntdq((uopc_words{size}*)p, (uopc_words{size})v);
#elif defined(__AVX__) && {size} == 32
  else __builtin_ia32_movntdq256((uopc_words{size}*)p, (uopc_words{size})v);
#elif defined(__AVX512F__) && {size} == 64
  else __builtin_ia32_movntdq512((uopc_words{size}*)p, (uopc_words{size})v);
#else
  else *({t}_mem*)p = v;
#endif
}}
"""

FENCE = f"""\
{INLINE}void uopc_fence(void) {{
#if defined(__SSE2__)
  __builtin_ia32_sfence();
#else
  __sync_synchronize();
#endif
}}
"""
"""What waits until all such stores of this thread can be seen by others."""


def stream_helper(t: str, size: int) -> str:
    """The function ``uopc_stream_T`` for vectors of ``size`` bytes."""
    return _STREAM.format(inline=INLINE, t=t, size=size)
