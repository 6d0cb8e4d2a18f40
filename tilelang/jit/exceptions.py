"""Errors of the tracer under the names that programs import."""

from ..errors import JITNoBuilderError

__all__ = ["JITNoBuilderError"]
