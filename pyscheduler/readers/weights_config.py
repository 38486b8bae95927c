"""The part ``weights`` of the configuration file, as YAML gives it, to `Weights`. Every problem is listed with its path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from pyscheduler.core.machine.links import Link, UnknownLinkTypeError
from pyscheduler.core.machine.weights import Override, Profile, Weights

__all__ = ["weights_config"]

_KEYS: Final = ("profile", "half_life_days", "gbps")
_OVERRIDE_KEYS: Final = ("link", "level", "model", "gbps")
_DAY_S: Final = 86400.0
# Beyond any figure that is meant, and far within what floats hold.
_MOST: Final = 1e9


def weights_config(raw: Any) -> tuple[Weights, list[str]]:
    """Return what `raw` says and all that is wrong with it. With problems the weights are not to be used."""
    if raw is None:
        return Weights(), []
    if not isinstance(raw, dict):
        return Weights(), [f"weights: {raw!r} must be a mapping of {', '.join(_KEYS)}"]
    problems = [f"weights.{key}: unknown; known are {', '.join(_KEYS)}" for key in raw if key not in _KEYS]
    profile = raw.get("profile", Profile.BANDWIDTH.value)
    if profile not in [each.value for each in Profile]:
        problems.append(f"weights.profile: {profile!r} is none of {', '.join(Profile)}")
        profile = Profile.BANDWIDTH
    days = raw.get("half_life_days", 30)
    if not _is_positive(days):
        problems.append(f"weights.half_life_days: {days!r} must be a number above 0 and up to {_MOST:.0f}")
        days = 30
    listed = raw.get("gbps")
    if listed is None:
        listed = []
    if not isinstance(listed, list):
        problems.append(f"weights.gbps: {listed!r} must be a list of entries such as {{link: NV18, model: H100, gbps: 380}}")
        listed = []
    overrides = [_override(f"weights.gbps[{i}]", entry, problems) for i, entry in enumerate(listed)]
    return Weights(Profile(profile), tuple([each for each in overrides if each]), days * _DAY_S), problems


def _override(path: str, entry: Any, problems: list[str]) -> Override | None:
    if not isinstance(entry, dict):
        problems.append(f"{path}: {entry!r} must be a mapping of {', '.join(_OVERRIDE_KEYS)}")
        return None
    found = [f"{path}.{key}: unknown; known are {', '.join(_OVERRIDE_KEYS)}" for key in entry if key not in _OVERRIDE_KEYS]
    found += _about_kind(path, entry)
    model = entry.get("model", "")
    if not isinstance(model, str) or not re.fullmatch(r"[A-Za-z0-9]*", model):
        found.append(f"{path}.model: {model!r} must be one word of the GPU's model, such as H100")
    if not _is_positive(entry.get("gbps")):
        found.append(f"{path}.gbps: {entry.get('gbps')!r} must be a number of GB/s above 0 and up to {_MOST:.0f}")
    problems += found
    if found:
        return None
    level = "level" in entry
    return Override(entry["level"] if level else _canonical(entry["link"]), float(entry["gbps"]), model.upper(), level=level)


def _canonical(link: str) -> str:
    """Return the one name that a link type has here: old drivers print SOC for SYS."""
    return link if link == "NV" else str(Link.parse(link))


def _about_kind(path: str, entry: Mapping[str, Any]) -> list[str]:
    if ("link" in entry) == ("level" in entry):
        return [f"{path}: needs either link (NV18, NV, XGMI, PIX, SYS ...) or level (the name of a fabric level)"]
    if "level" in entry:
        good = isinstance(entry["level"], str) and entry["level"]
        return [] if good else [f"{path}.level: {entry['level']!r} must be the name of a level"]
    link = entry["link"]
    try:
        if link != "NV":
            Link.parse(link)
    except (UnknownLinkTypeError, TypeError):
        return [f"{path}.link: {link!r} is no link type; use NV18, NV (any number), XGMI, PIX, PXB, PHB, NODE, PCIE or SYS"]
    return [] if link != "?" else [f"{path}.link: an unknown link has no speed; take the entry out"]


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= _MOST
