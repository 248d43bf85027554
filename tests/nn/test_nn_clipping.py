"""Gradients that are cut down between backward and step."""

from __future__ import annotations

import math

import numpy as np
import pytest
from test_nn_optimizers import B0, W0, start

from uopc.nn import SGD, clip_grad_norm, clip_grad_value
from uopc.tensor import Tensor


@pytest.mark.parametrize("most", [0.5, 5.0, 1e9])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_gradients_are_scaled_to_a_norm(most: float, dtype: type) -> None:
    w, b = start(dtype)
    left = Tensor(np.ones(2, dtype), requires_grad=True)
    ((w * 3).sum() + b.square().sum()).backward([w, b])
    before = [np.full(W0.shape, 3.0), 2 * B0.astype(dtype)]
    norm = math.sqrt(sum((g.astype(float) ** 2).sum() for g in before))
    got = clip_grad_norm([w, b, left], most)
    tolerance = 2e-3 if dtype == np.float16 else 1e-5
    assert got.item() == pytest.approx(norm, rel=tolerance)
    for p, g in zip((w, b), before, strict=True):
        assert p.grad is not None
        assert p.grad.dtype is p.dtype
        wanted = g * min(1, most / norm)
        np.testing.assert_allclose(p.grad.numpy(), wanted, rtol=tolerance)
    assert left.grad is None


def test_clipped_gradients_are_what_a_step_uses(runs: list[int]) -> None:
    w = Tensor(np.array([3.0, 4.0], np.float32), requires_grad=True)
    opt = SGD([w], lr=1.0)
    for clip, wanted in (
        (lambda: clip_grad_norm(opt.params, 1.0), [2.4, 3.2]),
        (lambda: clip_grad_value(opt.params, 2.5), [0.5, 1.5]),
    ):
        w.assign(Tensor(np.array([3.0, 4.0], np.float32))).realize()
        opt.zero_grad()
        (w.square() / 2).sum().backward(opt.params)
        clip()
        runs.clear()
        opt.step()
        assert len(runs) == 1
        np.testing.assert_allclose(w.numpy(), wanted, rtol=1e-5)


def test_clipping_with_nothing_to_clip() -> None:
    assert clip_grad_norm([Tensor(np.ones(2, np.float32))], 1.0).item() == 0
    for clip in (clip_grad_norm, clip_grad_value):
        with pytest.raises(ValueError, match="above 0, got -1"):
            clip([], -1.0)
