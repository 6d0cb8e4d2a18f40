"""The order in which blocks are started."""


class NoRasterization:
    """Blocks start in their natural order."""


__all__ = ["NoRasterization"]
