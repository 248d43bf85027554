"""The machine as schedules see it: what the compiler makes code for, and its caches."""

from __future__ import annotations

import ctypes
import functools

from uopc.backend_c import cache, cpu
from uopc.backend_c.load import LoadError, load
from uopc.backend_c.toolchain import CompileError, CompilerNotFoundError
from uopc.schedule import PLAIN, Target

# The compiler says it, because its command may name another processor than this one.
# As a program of the cache it is asked once. Nothing in there is run, only looked at.
_QUESTION = """\
#if defined(__AVX512F__)
enum { vector_bytes = 64, registers = 32 };
#elif defined(__AVX__)
enum { vector_bytes = 32, registers = 16 };
#elif defined(__aarch64__)
enum { vector_bytes = 16, registers = 32 };
#else
enum { vector_bytes = 16, registers = 16 };
#endif
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
enum { fma = 1 };
#else
enum { fma = 0 };
#endif
const int uopc_target[3] = {vector_bytes, registers, fma};
"""
_NAME = "uopc_target"
_OPT = 1  # the level does not change the answer


def current_target() -> Target:
    """What programs are made for here: by `UOPC_CC`, and else for this processor.

    What nobody tells is as in `PLAIN`: without a compiler that works, its part of it.
    """
    try:
        vector_bytes, registers, fma = _asked(cache.target(_OPT))
    except (CompilerNotFoundError, CompileError, LoadError):
        # Whoever compiles for it will hear the reason.
        vector_bytes, registers, fma = PLAIN.vector_bytes, PLAIN.registers, PLAIN.fma
    size = cpu.caches()
    return Target(
        vector_bytes=vector_bytes,
        registers=registers,
        fma=bool(fma),
        l1=size.get(1, PLAIN.l1),
        l2=size.get(2, PLAIN.l2),
        l3=size.get(3, PLAIN.l3),
        cores=cpu.cores(),
    )


@functools.lru_cache(maxsize=16)
def _asked(compiler_and_flags: str) -> tuple[int, int, int]:
    with load(cache.build(_QUESTION, _OPT, is_program=False)) as library:
        address = library.address(_NAME)
        if address is None:
            raise LoadError(f"{library.path} has no {_NAME}")
        first, second, third = (ctypes.c_int * 3).from_address(address)
    return first, second, third
