"""What authors of plugins and tests import.

``uopc.testing.strategies`` is not imported here: it needs hypothesis.
"""

from uopc.testing.bounded import Bounded, differences, evaluate_bounded
from uopc.testing.compare import compare, compare_seeds
from uopc.testing.graphs import RandomGraph, random_graph, replay
from uopc.testing.nodes import buf
from uopc.testing.ops import check_op, op_samples, sample_inputs
from uopc.testing.rules import check_rule

__all__ = [
    "Bounded",
    "RandomGraph",
    "buf",
    "check_op",
    "check_rule",
    "compare",
    "compare_seeds",
    "differences",
    "evaluate_bounded",
    "op_samples",
    "random_graph",
    "replay",
    "sample_inputs",
]
