"""Property tests here enumerate whole tiles: no deadline for a single example."""

from hypothesis import settings

settings.register_profile("layout", deadline=None)
settings.load_profile("layout")
