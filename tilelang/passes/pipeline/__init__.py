"""Copies ahead of their use, and what a bulk copy can do."""
