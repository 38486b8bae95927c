from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetStateRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStateResponse(_message.Message):
    __slots__ = ("version", "synced", "epoch", "generation", "nodes", "gpus", "gpus_free", "gpus_held", "refused_pods")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SYNCED_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    GPUS_FREE_FIELD_NUMBER: _ClassVar[int]
    GPUS_HELD_FIELD_NUMBER: _ClassVar[int]
    REFUSED_PODS_FIELD_NUMBER: _ClassVar[int]
    version: str
    synced: bool
    epoch: int
    generation: int
    nodes: int
    gpus: int
    gpus_free: int
    gpus_held: int
    refused_pods: int
    def __init__(self, version: _Optional[str] = ..., synced: _Optional[bool] = ..., epoch: _Optional[int] = ..., generation: _Optional[int] = ..., nodes: _Optional[int] = ..., gpus: _Optional[int] = ..., gpus_free: _Optional[int] = ..., gpus_held: _Optional[int] = ..., refused_pods: _Optional[int] = ...) -> None: ...

class ListNodesRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListNodesResponse(_message.Message):
    __slots__ = ("nodes",)
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    def __init__(self, nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("name", "index", "present", "resource", "allocatable", "free", "count_only", "class_hash", "gpus", "findings", "path", "assumed")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    ALLOCATABLE_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    COUNT_ONLY_FIELD_NUMBER: _ClassVar[int]
    CLASS_HASH_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    ASSUMED_FIELD_NUMBER: _ClassVar[int]
    name: str
    index: int
    present: bool
    resource: str
    allocatable: int
    free: int
    count_only: bool
    class_hash: str
    gpus: _containers.RepeatedCompositeFieldContainer[Gpu]
    findings: _containers.RepeatedScalarFieldContainer[str]
    path: _containers.RepeatedScalarFieldContainer[str]
    assumed: bool
    def __init__(self, name: _Optional[str] = ..., index: _Optional[int] = ..., present: _Optional[bool] = ..., resource: _Optional[str] = ..., allocatable: _Optional[int] = ..., free: _Optional[int] = ..., count_only: _Optional[bool] = ..., class_hash: _Optional[str] = ..., gpus: _Optional[_Iterable[_Union[Gpu, _Mapping]]] = ..., findings: _Optional[_Iterable[str]] = ..., path: _Optional[_Iterable[str]] = ..., assumed: _Optional[bool] = ...) -> None: ...

class Gpu(_message.Message):
    __slots__ = ("id", "uuid", "healthy", "state", "pod_uid")
    ID_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    POD_UID_FIELD_NUMBER: _ClassVar[int]
    id: str
    uuid: str
    healthy: bool
    state: str
    pod_uid: str
    def __init__(self, id: _Optional[str] = ..., uuid: _Optional[str] = ..., healthy: _Optional[bool] = ..., state: _Optional[str] = ..., pod_uid: _Optional[str] = ...) -> None: ...

class ListHoldingsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListHoldingsResponse(_message.Message):
    __slots__ = ("holdings",)
    HOLDINGS_FIELD_NUMBER: _ClassVar[int]
    holdings: _containers.RepeatedCompositeFieldContainer[Holding]
    def __init__(self, holdings: _Optional[_Iterable[_Union[Holding, _Mapping]]] = ...) -> None: ...

class Holding(_message.Message):
    __slots__ = ("pod_uid", "namespace", "name", "node", "state", "reason", "age_seconds", "gpus", "gpu_ids", "attempt", "relative_speed")
    POD_UID_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    GPU_IDS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RELATIVE_SPEED_FIELD_NUMBER: _ClassVar[int]
    pod_uid: str
    namespace: str
    name: str
    node: str
    state: str
    reason: str
    age_seconds: float
    gpus: int
    gpu_ids: _containers.RepeatedScalarFieldContainer[str]
    attempt: int
    relative_speed: float
    def __init__(self, pod_uid: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., node: _Optional[str] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., age_seconds: _Optional[float] = ..., gpus: _Optional[int] = ..., gpu_ids: _Optional[_Iterable[str]] = ..., attempt: _Optional[int] = ..., relative_speed: _Optional[float] = ...) -> None: ...

class ListRefusalsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListRefusalsResponse(_message.Message):
    __slots__ = ("refusals",)
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    refusals: _containers.RepeatedCompositeFieldContainer[Refusal]
    def __init__(self, refusals: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("pod_uid", "namespace", "name", "gpus", "reason", "generation", "age_seconds")
    POD_UID_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    pod_uid: str
    namespace: str
    name: str
    gpus: int
    reason: str
    generation: int
    age_seconds: float
    def __init__(self, pod_uid: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., gpus: _Optional[int] = ..., reason: _Optional[str] = ..., generation: _Optional[int] = ..., age_seconds: _Optional[float] = ...) -> None: ...

class ListCardsRequest(_message.Message):
    __slots__ = ("node", "only_bad", "page_size", "page_token")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ONLY_BAD_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    node: str
    only_bad: bool
    page_size: int
    page_token: str
    def __init__(self, node: _Optional[str] = ..., only_bad: _Optional[bool] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListCardsResponse(_message.Message):
    __slots__ = ("status", "cards", "next_page_token")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CARDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    status: CapacityStatus
    cards: _containers.RepeatedCompositeFieldContainer[Card]
    next_page_token: str
    def __init__(self, status: _Optional[_Union[CapacityStatus, _Mapping]] = ..., cards: _Optional[_Iterable[_Union[Card, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class CapacityStatus(_message.Message):
    __slots__ = ("mode", "url", "polled", "frozen", "open_breakers", "age_seconds", "problems", "counts")
    MODE_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    POLLED_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    OPEN_BREAKERS_FIELD_NUMBER: _ClassVar[int]
    AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    mode: str
    url: str
    polled: bool
    frozen: bool
    open_breakers: _containers.RepeatedScalarFieldContainer[str]
    age_seconds: float
    problems: _containers.RepeatedScalarFieldContainer[str]
    counts: _containers.RepeatedCompositeFieldContainer[CardCount]
    def __init__(self, mode: _Optional[str] = ..., url: _Optional[str] = ..., polled: _Optional[bool] = ..., frozen: _Optional[bool] = ..., open_breakers: _Optional[_Iterable[str]] = ..., age_seconds: _Optional[float] = ..., problems: _Optional[_Iterable[str]] = ..., counts: _Optional[_Iterable[_Union[CardCount, _Mapping]]] = ...) -> None: ...

class CardCount(_message.Message):
    __slots__ = ("model", "state", "cards", "excluded")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CARDS_FIELD_NUMBER: _ClassVar[int]
    EXCLUDED_FIELD_NUMBER: _ClassVar[int]
    model: str
    state: str
    cards: int
    excluded: int
    def __init__(self, model: _Optional[str] = ..., state: _Optional[str] = ..., cards: _Optional[int] = ..., excluded: _Optional[int] = ...) -> None: ...

class Card(_message.Message):
    __slots__ = ("node", "uuid", "mig", "model", "health", "speed", "available", "score", "relative_speed", "state", "since", "excluded", "evidence", "age_seconds", "confidence", "timer_seconds", "timer_end_seconds")
    NODE_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    MIG_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    SPEED_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    RELATIVE_SPEED_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    EXCLUDED_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    TIMER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TIMER_END_SECONDS_FIELD_NUMBER: _ClassVar[int]
    node: str
    uuid: str
    mig: str
    model: str
    health: float
    speed: float
    available: float
    score: float
    relative_speed: float
    state: str
    since: float
    excluded: bool
    evidence: str
    age_seconds: float
    confidence: float
    timer_seconds: float
    timer_end_seconds: float
    def __init__(self, node: _Optional[str] = ..., uuid: _Optional[str] = ..., mig: _Optional[str] = ..., model: _Optional[str] = ..., health: _Optional[float] = ..., speed: _Optional[float] = ..., available: _Optional[float] = ..., score: _Optional[float] = ..., relative_speed: _Optional[float] = ..., state: _Optional[str] = ..., since: _Optional[float] = ..., excluded: _Optional[bool] = ..., evidence: _Optional[str] = ..., age_seconds: _Optional[float] = ..., confidence: _Optional[float] = ..., timer_seconds: _Optional[float] = ..., timer_end_seconds: _Optional[float] = ...) -> None: ...
