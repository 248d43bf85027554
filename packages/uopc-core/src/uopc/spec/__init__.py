"""What is legal at each stage, checked between passes."""

from uopc.spec.stages import STAGES, SpecError, check

__all__ = ["STAGES", "SpecError", "check"]
