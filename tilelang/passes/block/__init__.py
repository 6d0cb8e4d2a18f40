"""The threads of a block as loops: the meaning of a thread-level program on a machine without threads."""
