"""Tools around kernels: pictures of layouts, estimates of work."""

from .Analyzer import Analyzer
from .plot_layout import plot_layout

__all__ = ["Analyzer", "plot_layout"]
