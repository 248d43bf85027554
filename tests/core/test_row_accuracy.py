"""What is measured of functions over axes, and that short rows keep their digits."""

from __future__ import annotations

import numpy as np
import pytest

from uopc.testing.rows import ROW_FUNCTIONS, RowFunction, measure_rows


@pytest.mark.parametrize("function", ROW_FUNCTIONS, ids=lambda f: f.name)
def test_short_rows_are_within_four_ulp(function: RowFunction) -> None:
    assert max(measure_rows(function, "interp", (3, 64, 1000))) <= 4


def test_an_error_is_seen() -> None:
    off = RowFunction(
        "off", lambda t: t.cumsum() * (1 + 2**-20), lambda x: x.cumsum(-1)
    )
    assert min(measure_rows(off, "interp", (3, 64))) > 4
    right = RowFunction("none", lambda t: t * 1, lambda x: x)
    assert measure_rows(right, "interp", (3,)) == [0]
    assert np.isfinite(measure_rows(off, "interp", (3,))).all()
