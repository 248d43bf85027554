"""Schedules measured instead of estimated: what `uopc tune` does."""
