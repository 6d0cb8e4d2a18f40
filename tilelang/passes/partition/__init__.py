"""Loops over tiles become loops of one thread."""
