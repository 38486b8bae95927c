"""One frozen configuration, read from a YAML file, validated at start.

Every problem is listed with its path; an unknown key is a problem.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import yaml

from pyscheduler.core.machine.weights import Weights
from pyscheduler.errors import ConfigError
from pyscheduler.readers.fabric.fabric_config import fabric_config
from pyscheduler.readers.fabric.rules import FabricConfig
from pyscheduler.readers.weights_config import weights_config

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
    fabric
        By what it is known where nodes are in the fabric: the labels of well-known writers, if nothing is set.
    weights
        How fast links and levels count.
    namespace
        Where the classes of machines are kept (ConfigMaps); None is the namespace of the pod, or ``default``.
    lease
        The Lease by which the scheduler of this service is elected, ``namespace/name`` as in its leaderElection; None where
        there is one scheduler, without leader election: then this service leads.
    host
        The host name of the scheduler, which begins the name of the Lease's holder; None is that of this machine or pod.
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
    fabric: FabricConfig = field(default_factory=FabricConfig)
    weights: Weights = field(default_factory=Weights)
    namespace: str | None = None
    lease: str | None = None
    host: str | None = None
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
        problems = [_unknown(key) for key in sorted(set(raw) - set(_KNOWN), key=str)]
        if isinstance(raw.get("resources"), list):
            raw["resources"] = tuple(raw["resources"])
        if "fabric" in raw:
            raw["fabric"], found = fabric_config(raw["fabric"])
            problems += found
        if "weights" in raw:
            raw["weights"], found = weights_config(raw["weights"])
            problems += found
        for key in _KNOWN:
            problems += _problems(key, raw[key]) if key in raw else []
        if problems:
            where = f"{path}: " if path else ""
            raise ConfigError(where + "\n  ".join(problems))
        return cls(**raw)


_KNOWN = tuple(f.name for f in fields(Config))
_CHOICES = {"log_format": ("json", "text"), "log_level": ("debug", "info", "warning", "error")}
# The kernel keeps 108 bytes for the path of a unix socket, the last of them 0 (unix(7)).
_SOCKET_BYTES_MAX = 107
# Names of namespaces and Leases: RFC 1123 label and subdomain.
_LEASE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-.a-z0-9]*[a-z0-9])?")


def _read(path: Path) -> dict[str, Any]:
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as cause:
        raise ConfigError(f"{path}: cannot be read ({cause.strerror}): name an existing file with --config") from cause
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as cause:
        raise ConfigError(f"{path}: is not YAML ({' '.join(str(cause).split())})") from cause
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: must be a mapping of settings, such as `socket: /run/pyscheduler/pyscheduler.sock`")
    return raw


def _unknown(key: Any) -> str:
    if key == "levels":
        return "levels: is a part of fabric; write `fabric: {pools: [{name: all, levels: [...]}]}`"
    return f"{key}: unknown; known are {', '.join(_KNOWN)}"


def _problems(key: str, value: Any) -> list[str]:
    if key in _CHOICES:
        return [] if value in _CHOICES[key] else [f"{key}: {value!r} is none of {', '.join(_CHOICES[key])}"]
    if key == "http_port":
        good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 65535
        return [] if good else [f"{key}: {value!r} must be a whole number from 0 to 65535"]
    if key in ("fabric", "weights"):
        return []  # read and judged by `fabric_config` and `weights_config`
    if key == "resources":
        good = isinstance(value, tuple) and bool(value) and all(isinstance(v, str) and v for v in value)
        return [] if good else [f"{key}: {value!r} must be a list of names"]
    if key in ("kubeconfig", "namespace", "lease", "host") and value is None:
        return []
    if not isinstance(value, str) or not value:
        return [f"{key}: {value!r} must be a text that is not empty"]
    return _text_problems(key, value)


def _text_problems(key: str, value: str) -> list[str]:
    if key == "lease" and not _LEASE.fullmatch(value):
        return [f"{key}: {value!r} must be namespace and name of the Lease in leaderElection, such as kube-system/kube-scheduler"]
    if key == "socket" and len(value.encode()) > _SOCKET_BYTES_MAX:
        return [f"{key}: {value!r} is longer than {_SOCKET_BYTES_MAX} bytes, the kernel's limit: choose a shorter path"]
    return []
