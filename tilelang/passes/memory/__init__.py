"""The plan of shared memory: who lies where, for how long, and the budget."""
