"""The planned peak of training steps, with and without checkpoint."""

from __future__ import annotations

from collections.abc import Callable

import networks
import pytest
from networks import plain

from uopc.autodiff import checkpoint
from uopc.kernelize import Plan, make_plan
from uopc.kernelize import plan as planning
from uopc.runtime import MemoryPlan, plan_memory
from uopc.tensor import Tensor
from uopc.uop import UOp

SIZES = {
    networks.mlp: (12, 16, 64),
    networks.transformer: (3, 32, 16),
    networks.cnn: (4, 16, 16),
}
STEPS = [networks.gradients, networks.sgd, networks.adam, networks.clipped]


def planned(roots: list[UOp]) -> tuple[Plan, MemoryPlan]:
    planning._plans.clear()
    plan, _ = make_plan(roots)
    return plan, plan_memory(plan)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("network", SIZES)
def test_the_arena_is_near_the_largest_live_set(
    network: Callable[..., list[Tensor]],
    step: Callable[..., list[UOp]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    roots = step(*network(*SIZES[network]))
    _, memory = planned(roots)
    assert memory.live_bytes <= memory.arena_bytes <= 1.1 * memory.live_bytes
    assert memory.arena_bytes < 0.75 * memory.sum_bytes
    # And no more than in the order in which the graph is walked.
    monkeypatch.setattr(planning, "run_order", lambda reads, *_: range(len(reads)))
    _, walked = planned(roots)
    assert memory.live_bytes <= walked.live_bytes
    if network is networks.mlp and step is not networks.clipped:
        assert memory.arena_bytes < 0.6 * walked.arena_bytes


@pytest.mark.parametrize("step", [networks.gradients, networks.sgd, networks.adam])
@pytest.mark.parametrize(
    ("network", "sizes", "ratio"),
    [
        (networks.mlp, (24, 16, 64), 3.5),  # 3.9
        (networks.transformer, (6, 32, 16), 3.0),  # 3.6
    ],
)
def test_a_checkpointed_deep_network_has_a_smaller_peak(
    network: Callable[..., list[Tensor]],
    step: Callable[..., list[UOp]],
    sizes: tuple[int, ...],
    ratio: float,
) -> None:
    kept, again = (
        planned(step(*network(*sizes, mark)))[1].arena_bytes
        for mark in (plain, checkpoint)
    )
    assert again * ratio < kept


def test_the_deeper_the_more_is_saved() -> None:
    """What a block adds to the peak: its argument, not what is inside."""

    def arena(depth: int, mark: Callable[..., Callable[[Tensor], Tensor]]) -> int:
        step = networks.sgd(*networks.mlp(depth, 16, 64, mark))
        return planned(step)[1].arena_bytes

    argument = 64 * 16 * 4
    assert arena(40, checkpoint) - arena(20, checkpoint) == 20 * argument
    # Without, also the result of the tanh, four times as wide.
    assert arena(40, plain) - arena(20, plain) == 20 * 5 * argument
