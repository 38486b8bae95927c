"""What each node was at every moment that the recorder of the chaos run saw. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from deploy.local.chaos_objects import Node


@dataclass(frozen=True, slots=True)
class _State:
    """A state that a node had from a revision on; `missed`: up to that revision it may have had others that nobody saw.

    None as `node`: it was gone.
    """

    node: Node | None
    revision: int
    at_s: float
    missed_after: int


@dataclass(slots=True)
class NodeHistory:
    """The states of all nodes, oldest first."""

    _states: dict[str, list[_State]] = field(default_factory=dict)
    _widest: dict[str, Node] = field(default_factory=dict)

    def see(self, node: Node, at_s: float) -> None:
        """Take the next change of a node."""
        self._add(node.name, _State(node, node.revision, at_s, missed_after=node.revision - 1))

    def see_gone(self, name: str, revision: int, at_s: float) -> None:
        """Take the deletion of a node."""
        self._add(name, _State(None, revision, at_s, missed_after=revision - 1))

    def see_all(self, nodes: Iterable[Node], last: int, version: int, at_s: float) -> None:
        """Take all nodes as they are at the revision `version`; what happened after the revision `last` may have been missed."""
        listed = {node.name: node for node in nodes}
        for node in listed.values():
            if node.revision > last or node.name not in self._states:
                self._add(node.name, _State(node, node.revision, at_s, missed_after=last))
        for name, states in self._states.items():
            if name not in listed and states[-1].node is not None:
                self._add(name, _State(None, version, at_s, missed_after=last))

    def latest(self) -> list[Node]:
        """Return the nodes as they were seen last."""
        return [states[-1].node for states in self._states.values() if states[-1].node]

    def now(self, name: str) -> Node | None:
        """Return a node as it was seen last; None if it is gone or was never seen."""
        states = self._states.get(name)
        return states[-1].node if states else None

    def widest(self, name: str) -> Node | None:
        """Return a node as it was when it had most GPUs; None if it was never seen."""
        return self._widest.get(name)

    def since(self, name: str, since_s: float, until: int) -> list[Node]:
        """Return every state that a node may have had from a time on and up to a revision, as far as it was seen."""
        return [state.node for state in self._from(name, since_s) if state.node and state.missed_after < until]

    def during(self, name: str, since_s: float, until_s: float) -> list[Node]:
        """Return every state of a node that was seen in a stretch of time, with that at its beginning."""
        return [state.node for state in self._from(name, since_s) if state.node and state.at_s <= until_s]

    def _from(self, name: str, since_s: float) -> list[_State]:
        states = self._states.get(name, [])
        earlier = sum(1 for state in states if state.at_s <= since_s)
        return states[max(0, earlier - 1) :]

    def _add(self, name: str, state: _State) -> None:
        self._states.setdefault(name, []).append(state)
        if state.node and (name not in self._widest or len(state.node.gpus) > len(self._widest[name].gpus)):
            self._widest[name] = state.node
