"""Where a node hangs in the fabric."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NOWHERE", "Domain", "Place"]

# A domain by its full path, nearest level first: ((level, name), ...). Its bare name is no identity: leaf-1 under spine-1
# and leaf-1 under spine-2 are two. The level's name is part of it, so a domain may be named like a host or another level's.
Domain = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Place:
    """The domains that hold a node.

    Attributes
    ----------
    path
        (level, name) of each domain, nearest first. A level that is not known is left out: it never becomes a common
        domain and never shifts the others.
    nvlink_domain
        The multi-node NVLink domain (NVL72: the rack), None if there is none. The whole string is its key.
    """

    path: Domain = ()
    nvlink_domain: str | None = None

    def domain(self, level: str) -> Domain | None:
        """Return the domain of this level, by its full path; None if it is not known."""
        for at, (name, _) in enumerate(self.path):
            if name == level:
                return self.path[at:]
        return None


NOWHERE = Place()
