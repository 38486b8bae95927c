"""One frozen configuration, read from a YAML file, validated at start.

Every problem is listed with its path; an unknown key is a problem.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import yaml

from pyscheduler.core.capacity.config import CapacityConfig
from pyscheduler.core.machine.weights import Weights
from pyscheduler.errors import ConfigError
from pyscheduler.readers.capacity_config import capacity_config, set_intervals
from pyscheduler.readers.cards.signals import signals_of
from pyscheduler.readers.fabric.fabric_config import fabric_config
from pyscheduler.readers.fabric.rules import FabricConfig
from pyscheduler.readers.metrics_config import MetricsConfig, metrics_config
from pyscheduler.readers.objects import ObjectReader
from pyscheduler.readers.weights_config import weights_config

__all__ = ["Config"]

# What the device plugins of NVIDIA, AMD and Tencent offer. The plugin's own defaults are the same.
_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "tencent.com/vcuda-core")
# 100 of it are one card: github.com/tkestack/gpu-manager, README.md, "Pod template example".
_UNITS_PER_GPU = {"tencent.com/vcuda-core": 100}


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
        Extended resources that are GPUs. MIG and time-sliced resources are not ours.
    units_per_gpu
        How many units of a resource are one whole GPU; 1 where nothing is said.
    fabric
        By what it is known where nodes are in the fabric: the labels of well-known writers, if nothing is set.
    weights
        How fast links and levels count.
    metrics
        Where the metrics of cards come from; without a URL from nowhere.
    capacity
        By which thresholds cards are judged: ``tuning`` and ``capacity`` of the file, and the intervals of ``metrics``.
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
    resources: tuple[str, ...] = _RESOURCES
    units_per_gpu: Mapping[str, int] = field(default_factory=lambda: dict(_UNITS_PER_GPU))
    fabric: FabricConfig = field(default_factory=FabricConfig)
    weights: Weights = field(default_factory=Weights)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    capacity: CapacityConfig = field(default_factory=CapacityConfig)
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
        problems = _put_dotted(raw)
        problems += [_unknown(key) for key in sorted(set(raw) - set(_KNOWN), key=str)]
        if isinstance(raw.get("resources"), list):
            raw["resources"] = tuple(raw["resources"])
        if "fabric" in raw:
            raw["fabric"], found = fabric_config(raw["fabric"])
            problems += found
        if "weights" in raw:
            raw["weights"], found = weights_config(raw["weights"])
            problems += found
        raw["metrics"], found = metrics_config(raw.get("metrics"))
        problems += found
        capacity, found = capacity_config(raw.pop("tuning", None), raw.get("capacity"))
        raw["capacity"] = set_intervals(capacity, raw["metrics"])
        problems += found
        if "units_per_gpu" in raw:
            problems += _units_problems(raw["units_per_gpu"], raw.get("resources", _RESOURCES))
        for key in _KNOWN:
            problems += _problems(key, raw[key]) if key in raw else []
        if problems:
            where = f"{path}: " if path else ""
            raise ConfigError(where + "\n  ".join(problems))
        raw["units_per_gpu"] = {**_UNITS_PER_GPU, **raw.get("units_per_gpu", {})}
        return cls(**raw)

    def reader(self, scheduler: str = "") -> ObjectReader:
        """Return what reads objects under this configuration; `scheduler` as of `ObjectReader`."""
        signals = signals_of(self.capacity.evidence, self.capacity.faults.warning)
        return ObjectReader(self.resources, units_per_gpu=self.units_per_gpu, scheduler=scheduler, signals=signals)


_KNOWN = (*(f.name for f in fields(Config)), "tuning")
# Parts whose settings may be written with a dot, as `metrics.historyWindow: 10m`.
_DOTTED = ("metrics", "tuning", "capacity")
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
    except (yaml.YAMLError, ValueError, RecursionError) as cause:
        raise ConfigError(f"{path}: is not YAML ({_yaml_problem(cause)})") from cause
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: must be a mapping of settings, such as `socket: /run/pyscheduler/pyscheduler.sock`")
    return raw


def _yaml_problem(cause: Exception) -> str:
    """Return what is wrong and where, without what stands there: it may be a secret."""
    if isinstance(cause, yaml.MarkedYAMLError) and cause.problem_mark is not None:
        where = f"line {cause.problem_mark.line + 1}, column {cause.problem_mark.column + 1}"
        is_form = isinstance(cause, yaml.scanner.ScannerError | yaml.parser.ParserError) and "handle" not in str(cause.problem)
        return f"{where}: {cause.problem if is_form else 'an alias, a tag or a key that cannot be used'}"
    if isinstance(cause, yaml.YAMLError | UnicodeDecodeError | RecursionError):
        return " ".join(str(cause).split())
    return "a number, a date or another value is not of the form of its type"


def _put_dotted(raw: dict[Any, Any]) -> list[str]:
    """Put settings that are written with a dot into their part; return what is wrong with them."""
    problems = []
    for key in [key for key in raw if isinstance(key, str) and key.partition(".")[0] in _DOTTED and "." in key]:
        part, _, name = key.partition(".")
        value = raw.pop(key)
        inside = raw[part] = raw.get(part) or {}
        if not isinstance(inside, dict) or name in inside:
            problems.append(f"{key}: is written twice: write it once, under {part}")
        else:
            inside[name] = value
    return problems


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
    if key in ("fabric", "weights", "units_per_gpu", "metrics", "tuning", "capacity"):
        return []  # judged by the reader of each, and `_units_problems`
    if key == "resources":
        good = isinstance(value, tuple) and bool(value) and all(isinstance(v, str) and v for v in value)
        return [] if good else [f"{key}: {value!r} must be a list of names"]
    if key in ("kubeconfig", "namespace", "lease", "host") and value is None:
        return []
    if not isinstance(value, str) or not value:
        return [f"{key}: {value!r} must be a text that is not empty"]
    return _text_problems(key, value)


def _units_problems(value: Any, resources: Any) -> list[str]:
    if not isinstance(value, dict):
        return [f"units_per_gpu: {value!r} must be a mapping of resources to numbers, such as {{tencent.com/vcuda-core: 100}}"]
    problems = []
    for name, units in value.items():
        if not isinstance(units, int) or isinstance(units, bool) or units < 1:
            problems.append(f"units_per_gpu.{name}: {units!r} must be a whole number from 1: how many units are one GPU")
        if isinstance(resources, tuple) and name not in (*resources, *_UNITS_PER_GPU):
            problems.append(f"units_per_gpu.{name}: is not one of resources, {', '.join(map(str, resources))}: add it there")
    return problems


def _text_problems(key: str, value: str) -> list[str]:
    if key == "lease" and not _LEASE.fullmatch(value):
        return [f"{key}: {value!r} must be namespace and name of the Lease in leaderElection, such as kube-system/kube-scheduler"]
    if key == "socket" and len(value.encode()) > _SOCKET_BYTES_MAX:
        return [f"{key}: {value!r} is longer than {_SOCKET_BYTES_MAX} bytes, the kernel's limit: choose a shorter path"]
    return []
