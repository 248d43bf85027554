"""A training compiles once: what changes from step to step is data."""

from __future__ import annotations

import numpy as np
import pytest

from uopc.dtype import f16
from uopc.nn import AdamW, Linear, parameters
from uopc.runtime import Stats, stats
from uopc.tensor import Tensor


def training(steps: int) -> tuple[list[Stats], list[float]]:
    """What each step did, and its loss; the learning rate and the scale move on.

    Half of the network computes in f16, whose gradients need a loss scale.
    """
    Tensor.manual_seed(3)
    rng = np.random.default_rng(3)
    images = rng.standard_normal((16, 8)).astype(np.float32)
    labels = (images.sum(1) > 0).astype(np.int32)
    layers = [Linear(8, 12), Linear(12, 2)]
    opt = AdamW(parameters(layers))
    scale = Tensor(np.asarray(1.0, np.float32))
    done: list[Stats] = []
    losses: list[float] = []
    for i in range(steps):
        before = stats()
        opt.lr = 1e-2 / (1 + i / 100)
        scale.assign(Tensor(np.asarray(2.0 ** (i % 5), np.float32)))
        hidden = layers[0](Tensor(np.roll(images, i, 0))).relu().cast(f16)
        loss = layers[1](hidden.cast(layers[1].weight.dtype)).cross_entropy(
            Tensor(np.roll(labels, i, 0))
        )
        opt.zero_grad()
        (loss * scale).backward(opt.params)
        for p in opt.params:
            assert p.grad is not None
            p.grad = p.grad / scale
        opt.step(loss)
        losses.append(loss.item())
        done.append(stats() - before)
    return done, losses


@pytest.mark.parametrize("steps", [40])
def test_a_training_makes_no_plan_after_its_second_step(steps: int) -> None:
    done, losses = training(steps)
    assert losses[-1] < 0.7 * losses[0]
    assert done[0].plans_made >= 1
    assert [d.plans_made for d in done[2:]] == [0] * (steps - 2)
    assert [d.compilations + d.cache_hits for d in done[2:]] == [0] * (steps - 2)
    # One call each, for the loss, the gradients and all updates.
    assert {(d.plans_found, d.native_calls) for d in done[2:]} == {(1, 1)}
    assert len({d.bytes_allocated for d in done[2:]}) == 1
