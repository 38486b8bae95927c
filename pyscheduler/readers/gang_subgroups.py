"""Which subgroup of its group a pod is in, in the words of those who make groups."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from pyscheduler.core.gangs.membership import Subgroup
from pyscheduler.readers.gang_levels import is_level, no_level
from pyscheduler.readers.gang_size import MEMBERS_MAX
from pyscheduler.readers.snapshot_values import shown

__all__ = ["Asked", "SubgroupWords", "subgroup_of"]

_NUMBER: Final = re.compile(r"\d{1,7}", re.ASCII)
_NAME_MAX: Final = 63
# A subgroup of one pod would be none.
_SIZE_MIN: Final = 2


class SubgroupWords(NamedTuple):
    """The keys of one vocabulary.

    Attributes
    ----------
    level
        That of the level.
    size, name
        That of the number of pods of each subgroup, and that of its name; one of them, or the same for both.
    usual
        The level where none is given; empty: then nothing is asked for.
    by_role, alone
        As in `Subgroup`.
    """

    level: str
    size: str = ""
    name: str = ""
    usual: str = ""
    by_role: bool = False
    alone: bool = False

    @property
    def keys(self) -> frozenset[str]:
        """All of them."""
        return frozenset((self.level, self.size, self.name)) - {""}


class Asked(NamedTuple):
    """What is asked for; `problem` says what is left out of use, `refusal` which wish cannot be read."""

    subgroup: Subgroup | None = None
    problem: str = ""
    refusal: str = ""


def subgroup_of(words: Sequence[SubgroupWords], said: Mapping[str, str]) -> Asked:
    """Return the subgroup of a pod. The first vocabulary counts that says which it is, and the first that says the level."""
    telling = next((each for each in words if not said.keys().isdisjoint({each.size, each.name} - {""})), None)
    leveled = next((each for each in words if each.level in said), None)
    if leveled is not None and not is_level(said[leveled.level]):
        return Asked(refusal=no_level(leveled.level, said[leveled.level]))
    if telling is None:
        return _of_none(leveled)
    text, alone = said[telling.size or telling.name].strip(), leveled is not None and leveled.alone
    asked = said[leveled.level].strip() if leveled is not None else telling.usual
    if not asked:
        # A name alone is one that a controller writes on all its pods.
        problem = f"{telling.size} is set, and {telling.level} is not: it is left out of use" if telling.size else ""
        return Asked(problem=problem)
    if telling.size and _NUMBER.fullmatch(text) and _SIZE_MIN <= int(text) <= MEMBERS_MAX:
        return Asked(Subgroup(asked, int(text), by_role=telling.by_role, alone=alone))
    if telling.name and _is_name(text) and not (telling.size and text.isdigit()):
        return Asked(Subgroup(asked, name=text, alone=alone))
    return Asked(refusal=_fault(telling, text))


def _of_none(leveled: SubgroupWords | None) -> Asked:
    """Return what is to be said to a pod that is in no subgroup, and may ask for a level."""
    if leveled is None or not leveled.size:
        # A controller writes the level also on a pod that it leaves out of its subgroups.
        return Asked()
    return Asked(refusal=f"{leveled.level} is set, and nothing says which pods are a subgroup: write {leveled.size}")


def _is_name(text: str) -> bool:
    return bool(text) and text.isprintable() and len(text) <= _NAME_MAX


def _fault(words: SubgroupWords, text: str) -> str:
    forms = [f"a whole number from {_SIZE_MIN} to {MEMBERS_MAX:,}"] if words.size else []
    forms += ["the name of a subgroup"] if words.name else []
    return f"{words.size or words.name} is {shown(text)}: write {' or '.join(forms)}"
