"""Passes for every target: checks, lowering of tile operators, guards, exact indices, simplification."""
