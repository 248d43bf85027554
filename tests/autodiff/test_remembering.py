"""What a gradient finds out once is kept until it ends, and no longer."""

from __future__ import annotations

import gc

import networks
import pytest

from uopc.autodiff.remembering import memo, one_pass, remembered
from uopc.uop import UOp
from uopc.uop.node import live_nodes


def test_a_function_is_computed_once_per_pass() -> None:
    calls = []

    @remembered
    def double(n: int) -> int:
        calls.append(n)
        return 2 * n

    with one_pass():
        assert [double(1), double(2), double(1)] == [2, 4, 2]
        with one_pass():  # as in a rule that takes a gradient itself
            assert double(2) == 4
        assert double(2) == 4
    assert calls == [1, 2]
    assert [double(1), double(1)] == [2, 2]
    assert calls == [1, 2, 1, 1]


def test_a_pass_that_fails_leaves_nothing() -> None:
    with pytest.raises(ZeroDivisionError), one_pass():
        memo("some")[1] = UOp
        raise ZeroDivisionError
    assert memo("some") == {}


def test_a_gradient_keeps_no_nodes() -> None:
    networks.gradients(*networks.cnn(2, 4, 8))  # what is made once for all
    gc.collect()
    before = live_nodes()
    gc.disable()
    try:
        networks.gradients(*networks.cnn(3, 8, 16))
        assert live_nodes() == before  # nor cycles of them
    finally:
        gc.enable()
