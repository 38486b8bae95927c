"""Failures of the world. Expected outcomes are values (`core.model.Verdict`), bugs are asserts.

    PyschedulerError
    ├── ConfigError          the configuration cannot be used
    ├── DocumentError        a node document cannot be used
    ├── KubernetesError      the API server refuses us or is away
    ├── ServeError           the socket or a port cannot be served
    ├── ServiceError         the running service does not answer (edge.inspect_client)
    ├── CardMemoryError      what is known of cards cannot be kept over restarts
    ├── PollError            a poll of the metrics of cards came to nothing (adapters.metrics_collector)
    ├── PrometheusError      Prometheus cannot be asked (adapters.prometheus_errors)
    ├── UnknownPresetError   no preset has this name (core.presets)
    ├── MergeError           views that are not of one machine (core.merge)
    ├── RefusedError         a text holds no topology (readers.reading)
    └── InputError           a file cannot be used as input (cli.input_text)

Every message says what failed, where, for which input, and what to do.
"""

from __future__ import annotations

__all__ = ["CardMemoryError", "ConfigError", "DocumentError", "KubernetesError", "PyschedulerError", "ServeError"]


class PyschedulerError(Exception):
    """Base of all of them; its text is one sentence for a person."""


class CardMemoryError(PyschedulerError):
    """What is known of cards cannot be read or kept."""


class ConfigError(PyschedulerError):
    """The configuration cannot be used. The message lists every problem with its path."""


class DocumentError(PyschedulerError):
    """A node document cannot be used."""


class KubernetesError(PyschedulerError):
    """The API server refuses a request or cannot be reached. `status`: of its answer, None if there was none."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


class ServeError(PyschedulerError):
    """The socket or a port cannot be served."""
