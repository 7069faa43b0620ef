"""Loops, tasks and locks that observe, plan and apply."""
