"""Warp roles: a producer and consumers, rings of slots, rotated loops, clusters, persistent grids."""
