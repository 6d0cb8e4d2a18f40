"""Where the threads of a block must meet."""
