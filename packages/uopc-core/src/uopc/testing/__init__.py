"""What authors of plugins and tests import."""

from uopc.testing.bounded import Bounded, differences, evaluate_bounded
from uopc.testing.graphs import RandomGraph, random_graph
from uopc.testing.nodes import buf

__all__ = [
    "Bounded",
    "RandomGraph",
    "buf",
    "differences",
    "evaluate_bounded",
    "random_graph",
]
