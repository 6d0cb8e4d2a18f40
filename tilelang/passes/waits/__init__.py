"""Asynchronous engines: fences in front of them, and waits as late as they may be."""
