from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NodeSet(_message.Message):
    __slots__ = ("epoch", "bitmap", "known")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BITMAP_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    bitmap: bytes
    known: int
    def __init__(self, epoch: _Optional[int] = ..., bitmap: _Optional[bytes] = ..., known: _Optional[int] = ...) -> None: ...

class NodesRequest(_message.Message):
    __slots__ = ("epoch", "known")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    known: int
    def __init__(self, epoch: _Optional[int] = ..., known: _Optional[int] = ...) -> None: ...

class NodesResponse(_message.Message):
    __slots__ = ("epoch", "first", "names", "newest_session")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    NEWEST_SESSION_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    first: int
    names: _containers.RepeatedScalarFieldContainer[str]
    newest_session: int
    def __init__(self, epoch: _Optional[int] = ..., first: _Optional[int] = ..., names: _Optional[_Iterable[str]] = ..., newest_session: _Optional[int] = ...) -> None: ...

class Attempt(_message.Message):
    __slots__ = ("session", "host", "number")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    session: int
    host: str
    number: int
    def __init__(self, session: _Optional[int] = ..., host: _Optional[str] = ..., number: _Optional[int] = ...) -> None: ...

class Pod(_message.Message):
    __slots__ = ("uid", "namespace", "name", "containers", "settings", "priority", "membership")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    UID_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    MEMBERSHIP_FIELD_NUMBER: _ClassVar[int]
    uid: str
    namespace: str
    name: str
    containers: _containers.RepeatedCompositeFieldContainer[ContainerRequest]
    settings: _containers.ScalarMap[str, str]
    priority: int
    membership: Membership
    def __init__(self, uid: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., containers: _Optional[_Iterable[_Union[ContainerRequest, _Mapping]]] = ..., settings: _Optional[_Mapping[str, str]] = ..., priority: _Optional[int] = ..., membership: _Optional[_Union[Membership, _Mapping]] = ...) -> None: ...

class Membership(_message.Message):
    __slots__ = ("labels", "annotations", "controller")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class AnnotationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    LABELS_FIELD_NUMBER: _ClassVar[int]
    ANNOTATIONS_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    labels: _containers.ScalarMap[str, str]
    annotations: _containers.ScalarMap[str, str]
    controller: Owner
    def __init__(self, labels: _Optional[_Mapping[str, str]] = ..., annotations: _Optional[_Mapping[str, str]] = ..., controller: _Optional[_Union[Owner, _Mapping]] = ...) -> None: ...

class Owner(_message.Message):
    __slots__ = ("api_version", "kind", "name", "uid")
    API_VERSION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    api_version: str
    kind: str
    name: str
    uid: str
    def __init__(self, api_version: _Optional[str] = ..., kind: _Optional[str] = ..., name: _Optional[str] = ..., uid: _Optional[str] = ...) -> None: ...

class PlanMember(_message.Message):
    __slots__ = ("plan", "group", "needed")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    NEEDED_FIELD_NUMBER: _ClassVar[int]
    plan: str
    group: str
    needed: int
    def __init__(self, plan: _Optional[str] = ..., group: _Optional[str] = ..., needed: _Optional[int] = ...) -> None: ...

class ContainerRequest(_message.Message):
    __slots__ = ("name", "kind", "resource", "gpus")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[ContainerRequest.Kind]
        KIND_APP: _ClassVar[ContainerRequest.Kind]
        KIND_INIT: _ClassVar[ContainerRequest.Kind]
        KIND_SIDECAR: _ClassVar[ContainerRequest.Kind]
    KIND_UNSPECIFIED: ContainerRequest.Kind
    KIND_APP: ContainerRequest.Kind
    KIND_INIT: ContainerRequest.Kind
    KIND_SIDECAR: ContainerRequest.Kind
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: ContainerRequest.Kind
    resource: str
    gpus: int
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[_Union[ContainerRequest.Kind, str]] = ..., resource: _Optional[str] = ..., gpus: _Optional[int] = ...) -> None: ...

class Verdict(_message.Message):
    __slots__ = ("code", "reason")
    class Code(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CODE_UNSPECIFIED: _ClassVar[Verdict.Code]
        CODE_OK: _ClassVar[Verdict.Code]
        CODE_UNSCHEDULABLE: _ClassVar[Verdict.Code]
        CODE_UNRESOLVABLE: _ClassVar[Verdict.Code]
        CODE_RETRY: _ClassVar[Verdict.Code]
    CODE_UNSPECIFIED: Verdict.Code
    CODE_OK: Verdict.Code
    CODE_UNSCHEDULABLE: Verdict.Code
    CODE_UNRESOLVABLE: Verdict.Code
    CODE_RETRY: Verdict.Code
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    code: Verdict.Code
    reason: str
    def __init__(self, code: _Optional[_Union[Verdict.Code, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class FilterRequest(_message.Message):
    __slots__ = ("attempt", "pod", "eligible")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    ELIGIBLE_FIELD_NUMBER: _ClassVar[int]
    attempt: Attempt
    pod: Pod
    eligible: NodeSet
    def __init__(self, attempt: _Optional[_Union[Attempt, _Mapping]] = ..., pod: _Optional[_Union[Pod, _Mapping]] = ..., eligible: _Optional[_Union[NodeSet, _Mapping]] = ...) -> None: ...

class FilterResponse(_message.Message):
    __slots__ = ("verdict", "epoch", "table_size", "generation", "feasible", "unresolvable", "candidates")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TABLE_SIZE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    FEASIBLE_FIELD_NUMBER: _ClassVar[int]
    UNRESOLVABLE_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    verdict: Verdict
    epoch: int
    table_size: int
    generation: int
    feasible: bytes
    unresolvable: bytes
    candidates: _containers.RepeatedCompositeFieldContainer[Candidate]
    def __init__(self, verdict: _Optional[_Union[Verdict, _Mapping]] = ..., epoch: _Optional[int] = ..., table_size: _Optional[int] = ..., generation: _Optional[int] = ..., feasible: _Optional[bytes] = ..., unresolvable: _Optional[bytes] = ..., candidates: _Optional[_Iterable[_Union[Candidate, _Mapping]]] = ...) -> None: ...

class PlanRequest(_message.Message):
    __slots__ = ("attempt", "pod", "eligible", "room", "refused_nodes")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    ELIGIBLE_FIELD_NUMBER: _ClassVar[int]
    ROOM_FIELD_NUMBER: _ClassVar[int]
    REFUSED_NODES_FIELD_NUMBER: _ClassVar[int]
    attempt: Attempt
    pod: Pod
    eligible: NodeSet
    room: bytes
    refused_nodes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, attempt: _Optional[_Union[Attempt, _Mapping]] = ..., pod: _Optional[_Union[Pod, _Mapping]] = ..., eligible: _Optional[_Union[NodeSet, _Mapping]] = ..., room: _Optional[bytes] = ..., refused_nodes: _Optional[_Iterable[str]] = ...) -> None: ...

class PlanResponse(_message.Message):
    __slots__ = ("verdict", "epoch", "table_size", "generation", "node", "member", "seats", "preempt")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TABLE_SIZE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    SEATS_FIELD_NUMBER: _ClassVar[int]
    PREEMPT_FIELD_NUMBER: _ClassVar[int]
    verdict: Verdict
    epoch: int
    table_size: int
    generation: int
    node: int
    member: PlanMember
    seats: _containers.RepeatedCompositeFieldContainer[PlanSeat]
    preempt: bool
    def __init__(self, verdict: _Optional[_Union[Verdict, _Mapping]] = ..., epoch: _Optional[int] = ..., table_size: _Optional[int] = ..., generation: _Optional[int] = ..., node: _Optional[int] = ..., member: _Optional[_Union[PlanMember, _Mapping]] = ..., seats: _Optional[_Iterable[_Union[PlanSeat, _Mapping]]] = ..., preempt: _Optional[bool] = ...) -> None: ...

class PlanSeat(_message.Message):
    __slots__ = ("pod_uid", "node")
    POD_UID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    pod_uid: str
    node: int
    def __init__(self, pod_uid: _Optional[str] = ..., node: _Optional[int] = ...) -> None: ...

class Candidate(_message.Message):
    __slots__ = ("node", "score")
    NODE_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    node: int
    score: int
    def __init__(self, node: _Optional[int] = ..., score: _Optional[int] = ...) -> None: ...

class ScoreRequest(_message.Message):
    __slots__ = ("attempt", "pod", "nodes")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    attempt: Attempt
    pod: Pod
    nodes: NodeSet
    def __init__(self, attempt: _Optional[_Union[Attempt, _Mapping]] = ..., pod: _Optional[_Union[Pod, _Mapping]] = ..., nodes: _Optional[_Union[NodeSet, _Mapping]] = ...) -> None: ...

class ScoreResponse(_message.Message):
    __slots__ = ("verdict", "ranked")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    RANKED_FIELD_NUMBER: _ClassVar[int]
    verdict: Verdict
    ranked: _containers.RepeatedCompositeFieldContainer[Candidate]
    def __init__(self, verdict: _Optional[_Union[Verdict, _Mapping]] = ..., ranked: _Optional[_Iterable[_Union[Candidate, _Mapping]]] = ...) -> None: ...

class ReserveRequest(_message.Message):
    __slots__ = ("attempt", "pod", "epoch", "node")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    attempt: Attempt
    pod: Pod
    epoch: int
    node: int
    def __init__(self, attempt: _Optional[_Union[Attempt, _Mapping]] = ..., pod: _Optional[_Union[Pod, _Mapping]] = ..., epoch: _Optional[int] = ..., node: _Optional[int] = ...) -> None: ...

class ReserveResponse(_message.Message):
    __slots__ = ("verdict", "generation", "annotations", "member")
    class AnnotationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ANNOTATIONS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    verdict: Verdict
    generation: int
    annotations: _containers.ScalarMap[str, str]
    member: PlanMember
    def __init__(self, verdict: _Optional[_Union[Verdict, _Mapping]] = ..., generation: _Optional[int] = ..., annotations: _Optional[_Mapping[str, str]] = ..., member: _Optional[_Union[PlanMember, _Mapping]] = ...) -> None: ...

class PreemptRequest(_message.Message):
    __slots__ = ("attempt", "pod", "nodes", "protected_uids", "room")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    PROTECTED_UIDS_FIELD_NUMBER: _ClassVar[int]
    ROOM_FIELD_NUMBER: _ClassVar[int]
    attempt: Attempt
    pod: Pod
    nodes: NodeSet
    protected_uids: _containers.RepeatedScalarFieldContainer[str]
    room: bytes
    def __init__(self, attempt: _Optional[_Union[Attempt, _Mapping]] = ..., pod: _Optional[_Union[Pod, _Mapping]] = ..., nodes: _Optional[_Union[NodeSet, _Mapping]] = ..., protected_uids: _Optional[_Iterable[str]] = ..., room: _Optional[bytes] = ...) -> None: ...

class PreemptResponse(_message.Message):
    __slots__ = ("verdict", "generation", "node", "victim_uids", "gpus", "ended_plans")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    VICTIM_UIDS_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    ENDED_PLANS_FIELD_NUMBER: _ClassVar[int]
    verdict: Verdict
    generation: int
    node: int
    victim_uids: _containers.RepeatedScalarFieldContainer[str]
    gpus: _containers.RepeatedScalarFieldContainer[str]
    ended_plans: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, verdict: _Optional[_Union[Verdict, _Mapping]] = ..., generation: _Optional[int] = ..., node: _Optional[int] = ..., victim_uids: _Optional[_Iterable[str]] = ..., gpus: _Optional[_Iterable[str]] = ..., ended_plans: _Optional[_Iterable[str]] = ...) -> None: ...

class UnreserveRequest(_message.Message):
    __slots__ = ("attempt", "pod_uid", "outcome", "ended_plan")
    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OUTCOME_UNSPECIFIED: _ClassVar[UnreserveRequest.Outcome]
        OUTCOME_NOT_BOUND: _ClassVar[UnreserveRequest.Outcome]
        OUTCOME_UNKNOWN: _ClassVar[UnreserveRequest.Outcome]
    OUTCOME_UNSPECIFIED: UnreserveRequest.Outcome
    OUTCOME_NOT_BOUND: UnreserveRequest.Outcome
    OUTCOME_UNKNOWN: UnreserveRequest.Outcome
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    POD_UID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ENDED_PLAN_FIELD_NUMBER: _ClassVar[int]
    attempt: Attempt
    pod_uid: str
    outcome: UnreserveRequest.Outcome
    ended_plan: str
    def __init__(self, attempt: _Optional[_Union[Attempt, _Mapping]] = ..., pod_uid: _Optional[str] = ..., outcome: _Optional[_Union[UnreserveRequest.Outcome, str]] = ..., ended_plan: _Optional[str] = ...) -> None: ...

class UnreserveResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Held(_message.Message):
    __slots__ = ("pod", "attempt", "node_name", "gpus", "doubtful", "nominated", "member", "let_go")
    POD_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    NODE_NAME_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    DOUBTFUL_FIELD_NUMBER: _ClassVar[int]
    NOMINATED_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    LET_GO_FIELD_NUMBER: _ClassVar[int]
    pod: Pod
    attempt: int
    node_name: str
    gpus: str
    doubtful: bool
    nominated: bool
    member: PlanMember
    let_go: bool
    def __init__(self, pod: _Optional[_Union[Pod, _Mapping]] = ..., attempt: _Optional[int] = ..., node_name: _Optional[str] = ..., gpus: _Optional[str] = ..., doubtful: _Optional[bool] = ..., nominated: _Optional[bool] = ..., member: _Optional[_Union[PlanMember, _Mapping]] = ..., let_go: _Optional[bool] = ...) -> None: ...

class ResyncRequest(_message.Message):
    __slots__ = ("attempt", "held", "shim_version")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    SHIM_VERSION_FIELD_NUMBER: _ClassVar[int]
    attempt: Attempt
    held: _containers.RepeatedCompositeFieldContainer[Held]
    shim_version: str
    def __init__(self, attempt: _Optional[_Union[Attempt, _Mapping]] = ..., held: _Optional[_Iterable[_Union[Held, _Mapping]]] = ..., shim_version: _Optional[str] = ...) -> None: ...

class ResyncResponse(_message.Message):
    __slots__ = ("epoch", "table_size", "generation", "service_version", "dropped", "conflicts")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TABLE_SIZE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SERVICE_VERSION_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    CONFLICTS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    table_size: int
    generation: int
    service_version: str
    dropped: _containers.RepeatedScalarFieldContainer[str]
    conflicts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, epoch: _Optional[int] = ..., table_size: _Optional[int] = ..., generation: _Optional[int] = ..., service_version: _Optional[str] = ..., dropped: _Optional[_Iterable[str]] = ..., conflicts: _Optional[_Iterable[str]] = ...) -> None: ...

class ChangesRequest(_message.Message):
    __slots__ = ("attempt",)
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    attempt: Attempt
    def __init__(self, attempt: _Optional[_Union[Attempt, _Mapping]] = ...) -> None: ...

class ChangesResponse(_message.Message):
    __slots__ = ("epoch", "table_size", "generation", "kinds", "pod_uids", "ended_plans")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[ChangesResponse.Kind]
        KIND_NODES: _ClassVar[ChangesResponse.Kind]
        KIND_FREED: _ClassVar[ChangesResponse.Kind]
        KIND_TOPOLOGY: _ClassVar[ChangesResponse.Kind]
    KIND_UNSPECIFIED: ChangesResponse.Kind
    KIND_NODES: ChangesResponse.Kind
    KIND_FREED: ChangesResponse.Kind
    KIND_TOPOLOGY: ChangesResponse.Kind
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TABLE_SIZE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    POD_UIDS_FIELD_NUMBER: _ClassVar[int]
    ENDED_PLANS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    table_size: int
    generation: int
    kinds: _containers.RepeatedScalarFieldContainer[ChangesResponse.Kind]
    pod_uids: _containers.RepeatedScalarFieldContainer[str]
    ended_plans: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, epoch: _Optional[int] = ..., table_size: _Optional[int] = ..., generation: _Optional[int] = ..., kinds: _Optional[_Iterable[_Union[ChangesResponse.Kind, str]]] = ..., pod_uids: _Optional[_Iterable[str]] = ..., ended_plans: _Optional[_Iterable[str]] = ...) -> None: ...
