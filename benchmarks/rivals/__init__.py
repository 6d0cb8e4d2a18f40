"""Rows of `benchmarks/gpu.py`: one piece of work, done by this package and by others, timed in turns.

`work.py` says what a row and a side are, `table.py` lists the rows, one module for each kind of work defines its sides; `server.py` runs
in the processes that own the device, `session.py` leads them, `report.py` writes what was found.
"""
