"""Where the elements of fragments and of shared tiles live."""
