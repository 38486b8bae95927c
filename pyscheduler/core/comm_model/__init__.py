"""How long a collective takes on a set of GPUs: used to rank placements, and for nothing else.

`predict` says how fast and what bounds it; `allreduce_gbps` is the bandwidth of a large all-reduce, the predicted
bandwidth of an answer. Cost per step and cost per byte, in the shape of NCCL's own tuning model (src/graph/tuning.cc):

- Inside a node or a multi-node NVLink domain: the ring that the device table finds, as far as measurements reach it.
- Across domains: also the network of the domain with least of it, so 8 + 8 GPUs beat 8 + 7 + 1.
- The faster of a ring and, for all-reduce across domains, a tree.

Limits. Small messages are latency, and NCCL has protocols for them that are not modelled: below 16 MB across domains and
1 MB inside one, `Prediction.trusted` is false. A network is idle, or as slow as the caller says by `Layout.oversubscription`:
contention, hot spots of ECMP and slow hosts are not known. That time grows in proportion to over-subscription is an
assumption: no sweep of it has been published. On two nodes NCCL's tree can exceed the ring's bound. Published systems of
one kind differ by 20 % among each other, so no millisecond of this is a promise.
"""

from __future__ import annotations

from pyscheduler.core.comm_model.layout import INFINIBAND, ROCE, Layout, Links, Network, NodeShare, share
from pyscheduler.core.comm_model.prediction import Bound, Collective, Prediction, allreduce_gbps, predict

__all__ = [
    "INFINIBAND",
    "ROCE",
    "Bound",
    "Collective",
    "Layout",
    "Links",
    "Network",
    "NodeShare",
    "Prediction",
    "allreduce_gbps",
    "predict",
    "share",
]
