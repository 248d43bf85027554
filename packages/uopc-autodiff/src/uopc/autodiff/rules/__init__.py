"""The gradient rules of the built-in ops, one file per op family.

A rule maps ``(node, cotangent of the node)`` to one cotangent per source, or
None where no gradient flows. Comparisons, integer ops and leaves need none.
"""

from uopc.autodiff.rules import convolution, elementwise, movement, reduction, selection

RULES = {
    **elementwise.RULES,
    **movement.RULES,
    **reduction.RULES,
    **selection.RULES,
    **convolution.RULES,
}

__all__ = ["RULES"]
