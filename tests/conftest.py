"""All tests, and the processes they start, check the law of its level after every stage (`tilelang/ir/verify.py`)."""

import os

os.environ.setdefault("TILELANG_VERIFY", "1")
