"""From Python functions to programs: `prim_func`, `macro`, and the eager style."""
