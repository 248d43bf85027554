"""From a graph to a plan: which nodes become buffers, which kernels run."""

from uopc.kernelize.plan import (
    Kernel,
    Plan,
    PlanBuffer,
    _plans,
    explain,
    make_plan,
    plan_graph,
)

__all__ = [
    "Kernel",
    "Plan",
    "PlanBuffer",
    "_plans",
    "explain",
    "make_plan",
    "plan_graph",
]
