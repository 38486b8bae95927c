"""Faults of the books that are known, and not mended yet.

Where a name is in `KNOWN`, the machine keeps away from what brings the fault out, or its model does the same as the books.
A fault that is mended is taken out here, and its test at the end of tests/property/test_books_machine.py loses its mark.
"""

from __future__ import annotations

from enum import Enum, auto

__all__ = ["KNOWN", "Fault"]


class Fault(Enum):
    """A way in which the books do not keep their promise."""

    # After a restart of the service, calls that come before the shim's Resync are given GPUs that the shim holds.
    RESERVE_BEFORE_RESYNC = auto()
    # A reservation is dropped when another pod is seen bound with its GPUs, and not taken up in a Resync while others
    # hold them: its own Binding may land all the same, and the GPUs are given out once more when the other pod goes.
    RESERVATION_YIELDS = auto()
    # The plugin leaves out of a Resync what its own view shows bound, though a service that started anew may not know yet.
    BOUND_LEFT_OUT_OF_RESYNC = auto()
    # A reservation on a node that is not known at the Resync is not taken up when the node becomes known.
    NODE_UNKNOWN_AT_RESYNC = auto()
    # A finished pod comes to life again when the watch shows it as it was before the live read.
    FINISHED_FORGOTTEN = auto()
    # A pod that was read live, and that the watch never showed, is held for ever if it goes during a gap of the watch.
    UNSEEN_LEAK = auto()
    # A refusal of a pod that the watch never showed is kept for ever.
    REFUSAL_LEAK = auto()
    # A call that comes late takes the place of what a newer attempt of the pod had reserved.
    OLDER_ATTEMPT = auto()
    # A call of a newer session ends what an older one had reserved for the pod, and bound it with: the newer one's view
    # of the pod is late, and what it does not know of has not been read live yet.
    NEWER_SESSION_TAKES_OVER = auto()
    # A Reserve that is repeated ends the holding of its pod, if the pod was bound to another node meanwhile.
    REPEATED_RESERVE = auto()
    # A Resync that comes late takes up again what was given back after it was written.
    LATE_RESYNC = auto()
    # What an older session said of a pod stands against what the newest one says in its Resync.
    OLDER_HOLDING_STANDS = auto()
    # A reservation that the plugin does not know of is kept while the pod is listed as nominated.
    NOMINATED_KEEPS_RESERVATION = auto()
    # What a node's agent reports of a nominated pod counts as free for a pod of higher priority, and is not.
    REPORT_OF_NOMINATED = auto()
    # The same in Preempt: what it names does not make room then.
    REPORT_OF_NOMINATED_IN_PREEMPT = auto()
    # A reservation is kept while its pod is seen bound to another node that is not known.
    BOUND_TO_UNKNOWN_NODE = auto()
    # Two pods that name one GPU count as one GPU.
    SHARED_GPU_COUNTS_ONCE = auto()


KNOWN: frozenset[Fault] = frozenset()
