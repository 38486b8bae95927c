package gputopology

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

const (
	reasonSchedulingGroup = "pods that ask for GPUs and set spec.schedulingGroup are not supported by the plugin " + Name +
		": remove spec.schedulingGroup"
	reasonNoGPUs = "no node has the free GPUs that the pod asks for"
	reasonRetry  = "the GPU topology service cannot judge the pod now; it is asked again"
)

var (
	errDoubtful    = errors.New("the outcome of an earlier binding of this pod is not known yet: its GPUs stay held until the API server tells")
	errTableMoving = errors.New("the GPU topology service started anew while it was asked; it is asked again")
)

// PreFilter asks the service for its verdict on all nodes that the pod's
// constraints admit, and restricts the cycle to the candidates that it names. For
// a pod that belongs to a group it asks for the pod's place in the group's plan.
func (p *Plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	switch asks, grouped := asksForGPUs(pod, p.args.Resources), pod.Spec.SchedulingGroup != nil; {
	case p.leavesAlone(pod):
		return nil, fwk.NewStatus(fwk.Skip)
	case asks && grouped:
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reasonSchedulingGroup)
	case !asks && (grouped || !isMember(pod)):
		return nil, fwk.NewStatus(fwk.Skip)
	}
	p.link.waiting.enter(pod)
	if p.link.books.isDoubtful(pod.UID) {
		return nil, p.failed(pod, errDoubtful)
	}
	c := &cycle{attempt: p.link.books.begin(), pod: p.describe(pod), verdict: verdict{table: p.link.tables.current()}}
	state.Write(stateKey, c)
	if c.pod.GetMembership() != nil {
		return p.planFor(ctx, c, pod, nodes)
	}
	answer, t, err := ask(ctx, p, func(ctx context.Context, t *table) (*pb.FilterResponse, error) {
		return p.filterCall(ctx, c, pod, nodes, t)
	})
	if err != nil {
		return nil, p.withoutAnswer(ctx, c, pod, err)
	}
	c.verdict = verdict{table: t, generation: answer.GetGeneration(), feasible: answer.GetFeasible(), unresolvable: answer.GetUnresolvable()}
	klog.FromContext(ctx).V(4).Info("Filter answered", logPod, klog.KObj(pod), logPodUID, pod.UID, logAttempt, c.attempt.GetNumber(),
		logVerdict, answer.GetVerdict().GetCode(), logGeneration, answer.GetGeneration(), logCandidates, len(answer.GetCandidates()))
	return p.conclude(c, pod, answer)
}

// judged is an answer that refers to a node table.
type judged interface {
	GetVerdict() *pb.Verdict
	GetEpoch() uint64
	GetTableSize() uint32
}

// ask makes the one Filter or Plan call, and a second one if the first shows that the table at hand is another or too
// short to refuse by.
func ask[A judged](ctx context.Context, p *Plugin, call func(context.Context, *table) (A, error)) (answer A, t *table, err error) {
	if p.link.client.breaker.isOpen() {
		return answer, nil, &unavailableError{endpoint: p.args.Endpoint}
	}
	if t = p.link.tables.current(); t.epoch == 0 {
		if t, err = p.fetchTable(ctx); err != nil {
			return answer, nil, err
		}
	}
	if answer, err = call(ctx, t); err != nil || t.suffices(answer) {
		return answer, t, err
	}
	if t, err = p.fetchTable(ctx); err != nil {
		return answer, nil, err
	}
	if answer, err = call(ctx, t); err == nil && answer.GetEpoch() != t.epoch {
		err = errTableMoving
	}
	return answer, t, err
}

func (p *Plugin) filterCall(ctx context.Context, c *cycle, pod *v1.Pod, nodes []fwk.NodeInfo, t *table) (*pb.FilterResponse, error) {
	c.eligible = p.eligible.of(klog.FromContext(ctx), pod, nodes, t)
	ctx, cancel := context.WithTimeout(ctx, p.args.FilterTimeout.Duration)
	defer cancel()
	return p.link.client.Filter(ctx, &pb.FilterRequest{
		Attempt:  c.attempt,
		Pod:      c.pod,
		Eligible: &pb.NodeSet{Epoch: t.epoch, Bitmap: c.eligible, Known: uint32(len(t.names))},
	})
}

func (p *Plugin) fetchTable(ctx context.Context) (*table, error) {
	ctx, cancel := context.WithTimeout(ctx, p.args.CallTimeout.Duration)
	defer cancel()
	return p.link.tables.fetch(ctx)
}

// conclude turns the service's verdict into the framework's.
func (p *Plugin) conclude(c *cycle, pod *v1.Pod, answer *pb.FilterResponse) (*fwk.PreFilterResult, *fwk.Status) {
	if answer.GetVerdict().GetCode() == pb.Verdict_CODE_OK {
		return p.nameCandidates(c, pod, answer.GetCandidates())
	}
	return nil, p.notOK(c, pod, "Filter", answer.GetVerdict())
}

// notOK is the status of every verdict but OK.
func (p *Plugin) notOK(c *cycle, pod *v1.Pod, method string, verdict *pb.Verdict) *fwk.Status {
	switch code, reason := verdict.GetCode(), verdict.GetReason(); code {
	case pb.Verdict_CODE_UNSCHEDULABLE:
		return p.refused(c, pod, fwk.Unschedulable, reason)
	case pb.Verdict_CODE_UNRESOLVABLE:
		return p.refused(c, pod, fwk.UnschedulableAndUnresolvable, reason)
	case pb.Verdict_CODE_RETRY:
		return p.failed(pod, errors.New(orDefault(reason, reasonRetry)))
	default:
		return p.failed(pod, p.nonsense(method, fmt.Sprintf("the verdict code %d", code)))
	}
}

// refused ends the cycle of a pod that no node can take.
func (p *Plugin) refused(c *cycle, pod *v1.Pod, code fwk.Code, reason string) *fwk.Status {
	c.kind = cycleRefused
	text := orDefault(reason, reasonNoGPUs)
	p.tell(pod, text)
	return fwk.NewStatus(code, text)
}

// nameCandidates restricts the cycle to the service's best nodes, or to none for a pod whose candidates failed before.
func (p *Plugin) nameCandidates(c *cycle, pod *v1.Pod, candidates []*pb.Candidate) (*fwk.PreFilterResult, *fwk.Status) {
	if p.link.waiting.isWide(pod.UID) {
		c.kind = cycleWide
		wideCycles.Inc()
		return nil, nil
	}
	c.kind, c.scores = cycleNarrow, scoresOf(candidates)
	names := sets.New[string]()
	for _, candidate := range candidates {
		if name, known := c.verdict.table.name(candidate.GetNode()); known {
			names.Insert(name)
		}
	}
	if names.Len() == 0 {
		return nil, p.failed(pod, p.nonsense("Filter", "a verdict that names no known node"))
	}
	if nominated := pod.Status.NominatedNodeName; c.verdict.refusal(nominated) == nil {
		names.Insert(nominated)
	}
	return &fwk.PreFilterResult{NodeNames: names}, nil
}

// withoutAnswer ends the cycle with an Error, or lets it only count GPUs where the args say so.
func (p *Plugin) withoutAnswer(ctx context.Context, c *cycle, pod *v1.Pod, err error) *fwk.Status {
	var away *unavailableError
	if p.args.OnUnavailable == unavailableFallback && errors.As(err, &away) {
		klog.FromContext(ctx).V(3).Info("GPUs of the pod are only counted: the service is away", logPod, klog.KObj(pod), logPodUID, pod.UID)
		c.kind = cycleAdvisory
		advisoryCycles.Inc()
		return nil
	}
	return p.failed(pod, err)
}

// failed is the status of a pod that is tried again with backoff, or at once when the service is back.
func (p *Plugin) failed(pod *v1.Pod, err error) *fwk.Status {
	p.link.waiting.noteFailed(pod.UID)
	p.tell(pod, err.Error())
	return fwk.AsStatus(err)
}

func (p *Plugin) nonsense(method, what string) error {
	return &nonsenseError{endpoint: p.args.Endpoint, method: method, what: what}
}

func orDefault(text, fallback string) string {
	if text == "" {
		return fallback
	}
	return text
}
