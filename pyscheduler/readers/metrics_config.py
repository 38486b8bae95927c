"""The part ``metrics`` of the configuration file: where Prometheus is and how it is asked. Every problem is listed with its path.

A value that may be a secret is in no message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyscheduler.readers.cards.card_labels import NODE_LABELS
from pyscheduler.readers.durations import seconds

__all__ = ["MetricsConfig", "metrics_config"]


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """Where the metrics of cards come from.

    Attributes
    ----------
    url
        Of Prometheus, or of what answers as it does, with its path; None asks nobody.
    interval_s
        Seconds from poll to poll.
    history_s
        How far back is asked for at the start and after a gap.
    timeout_s
        How long an answer may take.
    token_file
        A bearer token, read anew for every poll.
    username, password_file
        Basic authentication.
    ca_file, cert_file, key_file
        Whom to trust, and who we are.
    headers
        Sent with every query, such as X-Scope-OrgID.
    node_labels
        Labels that may hold the name of the node, the likeliest first.
    amd_prefix
        What AMD's exporter puts before its names.
    evidence
        A metric that says of each card how good it is, 0 to 1.
    memory_file
        A file that keeps what is known of cards over restarts; None keeps it in ConfigMaps.
    """

    url: str | None = None
    interval_s: float = 30.0
    history_s: float = 600.0
    timeout_s: float = 10.0
    token_file: str | None = None
    username: str | None = None
    password_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    node_labels: tuple[str, ...] = NODE_LABELS
    amd_prefix: str = ""
    evidence: str | None = None
    memory_file: str | None = None


# The names in the file; those of the first two are as they always were.
_DURATIONS: Final = {"collectionInterval": "interval_s", "historyWindow": "history_s", "timeout": "timeout_s"}
_TEXTS: Final = {
    "tokenFile": "token_file", "username": "username", "passwordFile": "password_file",
    "caFile": "ca_file", "certFile": "cert_file", "keyFile": "key_file", "memoryFile": "memory_file",
}  # fmt: skip
_KEYS: Final = ("url", *_DURATIONS, *_TEXTS, "headers", "nodeLabels", "amdPrefix", "evidence")
_RANGES: Final = {"collectionInterval": (5.0, 600.0), "historyWindow": (60.0, 86400.0), "timeout": (1.0, 120.0)}
# https://prometheus.io/docs/concepts/data_model: names of metrics and labels.
_METRIC: Final = re.compile(r"[a-zA-Z_:][\w:]*", re.ASCII)
_LABEL: Final = re.compile(r"[a-zA-Z_]\w*", re.ASCII)
_URL: Final = re.compile(r"https?://(?:\[[\da-fA-F:.]+\]|[\w.-]+)(?::(?P<port>\d{1,5}))?(?:/[^\s?#]*)?", re.ASCII)
_HEADER: Final = re.compile(r"[!#$%&'*+.^`|~\w-]+", re.ASCII)


def metrics_config(raw: Any) -> tuple[MetricsConfig, list[str]]:
    """Return what `raw` says and all that is wrong with it. With problems the settings are not to be used."""
    if raw is None:
        return MetricsConfig(), []
    if not isinstance(raw, dict):
        return MetricsConfig(), [
            f"metrics: must be a mapping of {', '.join(_KEYS)}, such as {{url: http://prometheus.monitoring:9090}}"
        ]
    problems = [f"metrics.{key}: unknown; known are {', '.join(_KEYS)}" for key in raw if key not in _KEYS]
    said: dict[str, Any] = {}
    for key, value in raw.items():
        if key in _KEYS:
            problem, read = _value(key, value)
            said[read[0]] = read[1]
            problems += (
                [f"metrics.{key}{problem}"] if problem.startswith(".") else [f"metrics.{key}: {problem}"] if problem else []
            )
    problems += _together(raw)
    return (MetricsConfig() if problems else MetricsConfig(**said)), problems


def _value(key: str, value: Any) -> tuple[str, tuple[str, Any]]:
    """Return what is wrong with a value ("": nothing; behind a point of a part of it), and name and value of its attribute."""
    if key in _DURATIONS:
        least, most = _RANGES[key]
        read = seconds(value)
        good = read is not None and least <= read <= most
        return ("" if good else f"{value!r} must be a duration from {least:.0f}s to {most:.0f}s, such as 30s or 10m"), (
            _DURATIONS[key],
            read,
        )
    if key in _TEXTS:
        good = value is None or (isinstance(value, str) and bool(value))
        if key == "username" and isinstance(value, str) and not (value.isprintable() and ":" not in value):
            return "must be the name alone, in one line and without a colon", (_TEXTS[key], value)
        return ("" if good else "must be a text that is not empty"), (_TEXTS[key], value)
    return _OTHERS[key](value)


def _url(value: Any) -> tuple[str, tuple[str, Any]]:
    if value is None:
        return "", ("url", None)
    if isinstance(value, str) and "@" in value:
        return "must not hold a password: write metrics.username and metrics.passwordFile", ("url", None)
    if not isinstance(value, str) or not _is_http(value):
        shown = f"{value.partition('?')[0]!r} " if isinstance(value, str) else ""
        return f"{shown}must be the address of Prometheus, such as http://prometheus.monitoring:9090", ("url", None)
    return "", ("url", value.rstrip("/"))


def _is_http(value: str) -> bool:
    found = _URL.fullmatch(value)
    return found is not None and 0 < int(found["port"] or 80) < 65536


def _headers(value: Any) -> tuple[str, tuple[str, Any]]:
    if not isinstance(value, dict):
        return "must be a mapping of names to texts, such as {X-Scope-OrgID: team}", ("headers", None)
    wrong = next((problem for name, text in value.items() if (problem := _header_problem(name, text))), "")
    return wrong, ("headers", value)


def _header_problem(name: Any, text: Any) -> str:
    """Return what is wrong with a header, "" if it can be sent."""
    if not isinstance(name, str) or not _HEADER.fullmatch(name):
        # What follows a name may be the value, by mistake.
        begun = _HEADER.match(name) if isinstance(name, str) else None
        return f".{begun.group() if begun else ''}: the name must be letters, digits and hyphens, such as X-Scope-OrgID"
    if not isinstance(text, str):
        return f".{name}: must be a text: put it in quotes"
    if not text.isprintable() or text != text.strip() or not text.isascii():
        return f".{name}: must be one line of ASCII, without a space at its ends"
    return ""


def _node_labels(value: Any) -> tuple[str, tuple[str, Any]]:
    good = isinstance(value, list) and bool(value) and all(isinstance(label, str) and _LABEL.fullmatch(label) for label in value)
    problem = "" if good else f"{value!r} must be a list of labels, such as [node, hostname]"
    return problem, ("node_labels", tuple(dict.fromkeys(value)) if good else ())


def _amd_prefix(value: Any) -> tuple[str, tuple[str, Any]]:
    good = value == "" or (isinstance(value, str) and _METRIC.fullmatch(value))
    return ("" if good else f"{value!r} must be the beginning of a metric's name, such as amd_"), ("amd_prefix", value)


def _evidence(value: Any) -> tuple[str, tuple[str, Any]]:
    good = value is None or (isinstance(value, str) and _METRIC.fullmatch(value))
    return ("" if good else f"{value!r} must be the name of a metric"), ("evidence", value)


_OTHERS: Final = {
    "url": _url,
    "headers": _headers,
    "nodeLabels": _node_labels,
    "amdPrefix": _amd_prefix,
    "evidence": _evidence,
}


def _together(raw: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with values beside each other."""
    problems = []
    if raw.get("tokenFile") and raw.get("username"):
        problems.append("metrics.tokenFile: stands beside metrics.username: write one of them")
    if bool(raw.get("username")) != bool(raw.get("passwordFile")):
        problems.append("metrics.username: needs metrics.passwordFile, and that needs it")
    if raw.get("keyFile") and not raw.get("certFile"):
        problems.append("metrics.keyFile: needs metrics.certFile")
    return problems
