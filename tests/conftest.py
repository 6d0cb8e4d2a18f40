"""All tests, and the processes they start, check the law of its level after every stage (`tilelang/ir/verify.py`)."""

import os

os.environ.setdefault("TILELANG_VERIFY", "1")


def pytest_addoption(parser):
    parser.addoption("--update-goldens", action="store_true", help="write the kept texts (tests/backend/cuda/golden) anew")
