"""Structured logs: one JSON object a line (or text for a terminal), one canonical line per call."""

from __future__ import annotations

import logging
import sys

import structlog
from structlog.typing import FilteringBoundLogger

__all__ = ["set_up"]


def set_up(log_format: str, level: str) -> FilteringBoundLogger:
    """Configure logging of the whole process and return the root logger."""
    number = logging.getLevelNamesMapping()[level.upper()]
    renderer = structlog.dev.ConsoleRenderer() if log_format == "text" else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
    logger: FilteringBoundLogger = structlog.get_logger()
    return logger
