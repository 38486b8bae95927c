"""One frozen configuration, read from a YAML file, validated at start.

Every problem is listed with its path; an unknown key is a problem.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import yaml

from pyscheduler.errors import ConfigError

__all__ = ["Config"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Configuration of `pyscheduler serve`.

    Attributes
    ----------
    socket
        Path of the unix socket that the shim dials.
    kubeconfig
        Path of a kubeconfig; None takes the service account of the pod.
    scheduler_name
        The `schedulerName` whose bindings are ours.
    resources
        Extended resources that are whole GPUs. MIG and time-sliced resources are not ours.
    levels
        Node label keys of the fabric levels, nearest first. The default is Topograph's (docs/reference/node-labels of v1.0).
    http_host, http_port
        Where /healthz, /readyz and /metrics are served. Port 0 takes a free one and logs it.
    log_format
        ``json`` or ``text``.
    log_level
        ``debug``, ``info``, ``warning`` or ``error``.
    """

    socket: str = "/run/pyscheduler/pyscheduler.sock"
    kubeconfig: str | None = None
    scheduler_name: str = "gpu-topology"
    resources: tuple[str, ...] = ("nvidia.com/gpu", "amd.com/gpu")
    levels: tuple[str, ...] = (
        "fabric.topograph.run/tier-0",
        "fabric.topograph.run/tier-1",
        "fabric.topograph.run/tier-2",
    )
    http_host: str = "0.0.0.0"  # noqa: S104  probes and Prometheus come from outside the pod
    http_port: int = 10270
    log_format: str = "json"
    log_level: str = "info"

    @classmethod
    def load(cls, path: Path | None, **overrides: Any) -> Self:
        """Return the configuration of the file, with the overrides that are not None.

        Raises
        ------
        ConfigError
            If the file cannot be read, or a value cannot be used.

        """
        raw = _read(path) if path else {}
        raw |= {k: v for k, v in overrides.items() if v is not None}
        problems = [f"{key}: unknown; known are {', '.join(_KNOWN)}" for key in sorted(set(raw) - set(_KNOWN))]
        for key in ("resources", "levels"):
            if isinstance(raw.get(key), list):
                raw[key] = tuple(raw[key])
        for key in _KNOWN:
            problems += _problems(key, raw[key]) if key in raw else []
        if problems:
            where = f"{path}: " if path else ""
            raise ConfigError(where + "; ".join(problems))
        return cls(**raw)


_KNOWN = tuple(f.name for f in fields(Config))
_CHOICES = {"log_format": ("json", "text"), "log_level": ("debug", "info", "warning", "error")}
# The kernel keeps 108 bytes for the path of a unix socket, the last of them 0 (unix(7)).
_SOCKET_BYTES_MAX = 107


def _read(path: Path) -> dict[str, Any]:
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as cause:
        raise ConfigError(f"{path}: cannot be read ({cause.strerror}): name an existing file with --config") from cause
    except yaml.YAMLError as cause:
        raise ConfigError(f"{path}: is not YAML ({' '.join(str(cause).split())})") from cause
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: must be a mapping of settings, such as `socket: /run/pyscheduler/pyscheduler.sock`")
    return raw


def _problems(key: str, value: Any) -> list[str]:
    if key in _CHOICES:
        return [] if value in _CHOICES[key] else [f"{key}: {value!r} is none of {', '.join(_CHOICES[key])}"]
    if key == "http_port":
        good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 65535
        return [] if good else [f"{key}: {value!r} must be a whole number from 0 to 65535"]
    if key in ("resources", "levels"):
        good = isinstance(value, tuple) and all(isinstance(v, str) and v for v in value)
        good = good and (key == "levels" or bool(value))
        return [] if good else [f"{key}: {value!r} must be a list of names"]
    if key == "kubeconfig" and value is None:
        return []
    if not isinstance(value, str) or not value:
        return [f"{key}: {value!r} must be a text that is not empty"]
    if key == "socket" and len(value.encode()) > _SOCKET_BYTES_MAX:
        return [f"{key}: {value!r} is longer than {_SOCKET_BYTES_MAX} bytes, the kernel's limit: choose a shorter path"]
    return []
