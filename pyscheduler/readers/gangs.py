"""Which group a pod belongs to, by its labels and annotations, in whichever words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from pyscheduler.core.fabric.merge_tree import NODE_LEVEL
from pyscheduler.core.gangs.membership import GangKey, Membership, ObjectRef, OwnerRef, Subgroup
from pyscheduler.readers.gang_levels import NO_LEVELS, is_level
from pyscheduler.readers.gang_size import MEMBERS_MAX, POD_GROUP, ref_of
from pyscheduler.readers.gang_subgroups import subgroup_of
from pyscheduler.readers.gang_words import LEFT_OUT, ROLES, Words, used_by
from pyscheduler.readers.snapshot_values import shown

__all__ = ["GROUP_KEYS", "Controller", "membership_of"]

# A pod with one of these belongs to a group. The scheduler's plugin has the same list.
GROUP_KEYS: Final = frozenset(
    (
        "pyscheduler.io/group",
        "scheduling.x-k8s.io/pod-group",
        "pod-group.scheduling.sigs.k8s.io",
        "pod-group.scheduling.sigs.k8s.io/name",
        "gang.scheduling.koordinator.sh/name",
        "pod-group-name",
        "kueue.x-k8s.io/pod-group-name",
        "scheduling.k8s.io/group-name",
        "jobset.sigs.k8s.io/jobset-name",
        "leaderworkerset.sigs.k8s.io/name",
        "training.kubeflow.org/job-name",
    )
)

_SPREAD: Final = "pyscheduler.io/spread"
_WAIT: Final = "pyscheduler.io/wait"
_SAME_MODEL: Final = "pyscheduler.io/same-model"
_ONE_POD_PER_NODE: Final = "pyscheduler.io/one-pod-per-node"

_NUMBER: Final = re.compile(r"\d{1,7}", re.ASCII)
_DURATION: Final = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,6})m)?(?:(\d{1,7})s)?", re.ASCII)
_SWITCH: Final = {"true": True, "false": False}
# An object's name has at most 253 characters; with it stands an index.
_NAME_MAX: Final = 300
# The place of roles that `ROLES` does not know.
_OTHER_ROLE: Final = max(ROLES.values()) + 1


class Controller(NamedTuple):
    """The object that controls a pod. Without a UID it tells of the group's size, and owns nothing."""

    api_version: str
    kind: str
    name: str
    uid: str = ""


def membership_of(
    namespace: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    controller: Controller | None,
) -> Membership | None:
    """Return the group of a pod and its place there, None for a pod without any of `GROUP_KEYS`.

    Parameters
    ----------
    namespace, labels, annotations, controller
        Those of the pod. An annotation wins over a label.

    """
    if GROUP_KEYS.isdisjoint(labels) and GROUP_KEYS.isdisjoint(annotations):
        return None
    return _Reader(namespace, {**labels, **annotations}, controller).membership()


class _Reader:
    """Reads one pod. A wish that cannot be read is told: in `refusals` a hard one, in `problems` one that is left out of use."""

    def __init__(self, namespace: str, said: Mapping[str, str], controller: Controller | None) -> None:
        self._namespace = namespace
        self._said = said
        self._controller = controller
        self._numbers: dict[str, int | None] = {}
        self.problems = [f"{key} is not supported: it is left out of use" for key in LEFT_OUT if key in said]
        self.refusals: list[str] = []

    def membership(self) -> Membership:
        """Return what the pod says."""
        gang, words = self._gang()
        least, most, spec_from = self._size(words)
        role, index = self._place(words)
        required, preferred = self._levels_of(words)
        subgroup, spread = self._subgroup(words), self._spread()
        wait_s = self._wait()
        one_pod_per_node, same_model = self._switch(_ONE_POD_PER_NODE), self._switch(_SAME_MODEL)
        return Membership(
            gang=gang,
            min_members=least,
            max_members=most,
            spec_from=spec_from,
            role=role,
            index=index,
            required_level=required,
            preferred_level=preferred,
            subgroup=subgroup,
            spread_level=spread,
            wait_s=wait_s,
            one_pod_per_node=one_pod_per_node,
            same_model=same_model,
            problems=tuple(self.problems),
            refusal="; ".join(self.refusals),
            owner=OwnerRef(*self._controller) if self._controller and self._controller.uid else None,
        )

    def _gang(self) -> tuple[GangKey, list[Words]]:
        """Return the group, and the vocabularies that say more of it: all but those that name another one."""
        used = used_by(self._said)
        named = [(words, *self._name(words)) for words in used if words.group and words.group[0] in self._said]
        faults = [fault for _, _, fault in named if fault]
        good = [(words, name) for words, name, fault in named if not fault]
        if not good:
            self.refusals += faults
            return GangKey(self._namespace, "", named[0][0].vocabulary), used
        self.problems += [f"{fault}; it is left out of use" for fault in faults]
        first, name = good[0]
        # That a controller calls its pods otherwise is no contradiction: whoever made the group knows them.
        rivals = [(words, other) for words, other in good[1:] if words.on_purpose is first.on_purpose and other != name]
        self.problems += [
            f"{first.group[0]} names the group {name}, {words.group[0]} names {other}: the first counts"
            for words, other in rivals
        ]
        others = [words for words, _ in rivals]
        return GangKey(self._namespace, name, first.vocabulary), [words for words in used if words not in others]

    def _name(self, words: Words) -> tuple[str, str]:
        """Return the group's name, and what is wrong with it."""
        values = [(key, self._said.get(key, "").strip()) for key in words.group]
        for key, value in values:
            if not value or not value.isprintable() or len(value) > _NAME_MAX:
                fault = "is missing" if key not in self._said else f"is {shown(self._said[key])}"
                return "", f"{key} {fault}: write the name of a group"
        return "-".join(value for _, value in values), ""

    def _size(self, words: list[Words]) -> tuple[int | None, int | None, ObjectRef | None]:
        """Return the least and the largest number of members, and the object that says what the pod does not."""
        told = [each for each in words if not self._is_staged(each)]
        least, source = next(self._sizes(told), (None, None))
        if least is None and source is None and len(told) < len(words):
            least = 1
        most = next((n for each in told if (n := self._number(each.most, 1)) is not None), None)
        if least is None and source is None and not self.refusals:
            self.problems.append("nothing says how many members the group has: write pyscheduler.io/min-members")
        if least is not None and most is not None and least > most:
            self.problems.append(f"the group has at least {least} and at most {most} members: the larger number is used for both")
            most = least
        return least, most, source or self._pod_group(told)

    def _sizes(self, words: list[Words]) -> Iterator[tuple[int | None, ObjectRef | None]]:
        for each in words:
            least = self._number(each.least, 1, hard=True)
            source = self._object(each) if least is None else None
            if least is not None or source is not None:
                yield least, source
        if self._is_made_by("batch"):
            yield None, self._owner()

    def _pod_group(self, words: list[Words]) -> ObjectRef | None:
        """Return the PodGroup of the pod: the size aside, it may say levels."""
        found = (self._object(each) for each in words if each.sized_by is not None and each.sized_by[1] == POD_GROUP)
        return next((ref for ref in found if ref is not None), None)

    def _is_staged(self, words: Words) -> bool:
        if words.staged is None:
            return False
        key, value = words.staged
        return key in self._said and value in (None, self._said[key])

    def _object(self, words: Words) -> ObjectRef | None:
        """Return the object that says the size of the group that the vocabulary names."""
        if words.sized_by is None or not self._said.get(words.group[0], "").strip():
            return None
        if words.owner and self._is_made_by(words.owner):
            return self._owner()
        return ref_of(*words.sized_by, self._namespace, self._said[words.group[0]].strip())

    def _is_made_by(self, group: str) -> bool:
        """Tell whether the pod's controller is of this API group."""
        return self._controller is not None and self._controller.api_version.partition("/")[0] == group

    def _owner(self) -> ObjectRef | None:
        """Return the pod's controller as the object that says the size, None if it says none."""
        made = self._controller
        return ref_of(made.api_version, made.kind, self._namespace, made.name) if made else None

    def _place(self, words: list[Words]) -> tuple[tuple[int, str], int | None]:
        """Return the role and the index that the first vocabulary gives that gives either."""
        for each in words:
            role = next((role for key in each.role if (role := self._role(key))), "")
            index = next((n for key in each.index if (n := self._number(key, 0)) is not None), None)
            if role or index is not None:
                order = next((n for key in each.role_order if (n := self._number(key, 0)) is not None), None)
                return (ROLES.get(role, _OTHER_ROLE if role else 0) if order is None else order, role), index
        return (0, ""), None

    def _role(self, key: str) -> str:
        role = self._said.get(key, "").strip().lower()
        return role if role.isprintable() else ""

    def _levels_of(self, words: list[Words]) -> tuple[str | None, str | None]:
        """Return the required and the preferred level, each of the first vocabulary that gives one."""
        required = preferred = None
        for each in words:
            asked = each.levels.read(self._said) if each.levels else NO_LEVELS
            required, preferred = required or asked.required, preferred or asked.preferred
            self.problems += [asked.problem] if asked.problem else []
            self.refusals += [asked.refusal] if asked.refusal else []
        return self._level(required), self._level(preferred)

    def _level(self, written: str | None) -> str | None:
        return None if written is None else written.strip()

    def _subgroup(self, words: list[Words]) -> Subgroup | None:
        asked = subgroup_of([each.subgroup for each in words if each.subgroup], self._said)
        self.problems += [asked.problem] if asked.problem else []
        self.refusals += [asked.refusal] if asked.refusal else []
        return asked.subgroup

    def _spread(self) -> str | None:
        """Return the level to spread over: `true` is the node."""
        text = self._said.get(_SPREAD, "false").strip()
        switch = _SWITCH.get(text.lower())
        if switch is None and not is_level(text):
            self._fault(f"{_SPREAD} is {shown(text)}: write true, false or the name of a level, such as rack", hard=True)
            return None
        return text if switch is None else NODE_LEVEL if switch else None

    def _number(self, key: str, least: int, *, hard: bool = False) -> int | None:
        """Return the whole number under a key, None if there is none or it cannot be read, which is told once."""
        if key not in self._numbers:
            self._numbers[key] = self._read_number(key, least, hard=hard)
        return self._numbers[key]

    def _read_number(self, key: str, least: int, *, hard: bool) -> int | None:
        text = self._said.get(key)
        if text is None:
            return None
        if _NUMBER.fullmatch(text.strip()) and least <= int(text) <= MEMBERS_MAX:
            return int(text)
        self._fault(f"{key} is {shown(text)}: write a whole number from {least} to {MEMBERS_MAX:,}", hard=hard)
        return None

    def _switch(self, key: str) -> bool:
        text = self._said.get(key, "false")
        value = _SWITCH.get(text.strip().lower())
        if value is None:
            self._fault(f"{key} is {shown(text)}: write true or false", hard=True)
        return bool(value)

    def _wait(self) -> float | None:
        text = self._said.get(_WAIT)
        if text is None:
            return None
        found = _DURATION.fullmatch(text.strip())
        if found is None or not any(found.groups()):
            self._fault(f"{_WAIT} is {shown(text)}: write a duration, such as 90s, 10m or 1h30m", hard=False)
            return None
        hours, minutes, seconds = (int(number or 0) for number in found.groups())
        return 3600.0 * hours + 60.0 * minutes + seconds

    def _fault(self, what: str, *, hard: bool) -> None:
        if hard:
            self.refusals.append(what)
        else:
            self.problems.append(f"{what}; it is left out of use")
