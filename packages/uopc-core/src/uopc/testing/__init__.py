"""What authors of plugins and tests import.

``uopc.testing.strategies`` is not imported here: it needs hypothesis.
"""

from uopc.testing.bounded import Bounded, differences, evaluate_bounded
from uopc.testing.compare import compare, compare_seeds
from uopc.testing.graphs import RandomGraph, random_graph, replay
from uopc.testing.nodes import buf
from uopc.testing.ops import check_op
from uopc.testing.rules import check_rule
from uopc.testing.samples import op_samples, sample_inputs
from uopc.testing.vjp import check_vjp
from uopc.testing.vjp_levels import Counts
from uopc.testing.work import iterations, plan_iterations

__all__ = [
    "Bounded",
    "Counts",
    "RandomGraph",
    "buf",
    "check_op",
    "check_rule",
    "check_vjp",
    "compare",
    "compare_seeds",
    "differences",
    "evaluate_bounded",
    "iterations",
    "op_samples",
    "plan_iterations",
    "random_graph",
    "replay",
    "sample_inputs",
]
