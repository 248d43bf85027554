"""Functions of numbers on vectors, in C, for f32 and f64.

Every lane is computed alike, without branches, so its bits depend neither on how many
lanes there are nor on the compiler: where multiply-add is an instruction they are the
same everywhere. ``uopc ulp`` measures them, and `docs/ulp.md` has the results.
"""

from uopc.backend_c.vector_math.table import (
    FUNCTIONS,
    VECTOR_MATH,
    Function,
    definitions,
)

__all__ = ["FUNCTIONS", "VECTOR_MATH", "Function", "definitions"]
