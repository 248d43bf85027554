"""What CAST means: the one documented rule, for every backend.

* to bool: ``x != 0`` (NaN is True);
* float to integer: toward zero; out of range saturates; NaN gives 0;
* integer to integer: modulo 2**bits;
* to float: rounded to nearest, ties to even, beyond the largest number to infinity;
  f64 to a half type is rounded once, an integer to a half type by way of f32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from uopc.dtype import DType, from_numpy


def cast_array(x: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """``x`` as ``dtype`` by the rule above."""
    x = np.asarray(x)
    if dtype.kind == "bool":
        return np.asarray(x != 0)
    if dtype.is_half:
        return dtype.round(x if x.dtype.kind == "f" else x.astype(np.float32))
    if dtype.is_int and from_numpy(x.dtype).is_float:
        # The ends of the range are beyond the largest f16.
        x = x.astype(np.float32) if x.dtype == np.float16 else x
        # float(dtype.max) may round up to 2**bits, so compare with ">=".
        high = float(dtype.max)
        whole = np.trunc(np.where(np.isnan(x), 0, x))
        safe = np.where((whole >= high) | (whole <= dtype.min), 0, whole)
        out = safe.astype(dtype.numpy)
        out = np.where(whole >= high, dtype.numpy.type(dtype.max), out)
        return np.where(whole <= dtype.min, dtype.numpy.type(dtype.min), out)
    with np.errstate(all="ignore"):
        return x.astype(dtype.numpy)
