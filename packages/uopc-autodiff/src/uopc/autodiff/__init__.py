"""Reverse-mode differentiation of graphs by rules."""

from uopc.autodiff.gradient import NoGradientRule, gradient

__all__ = ["NoGradientRule", "gradient"]
