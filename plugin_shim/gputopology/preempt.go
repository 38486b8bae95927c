package gputopology

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	kubeschedulerv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	configv1 "k8s.io/kubernetes/pkg/scheduler/apis/config/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	schedulermetrics "k8s.io/kubernetes/pkg/scheduler/metrics"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

const (
	// proposalsMax is how many nodes the service is asked for in one cycle: that one does not do is rare.
	proposalsMax = 8
	// candidatesMax is how many nodes are asked about at a time, and enough for the service to choose from: the
	// in-tree preemption is content with 100.
	candidatesMax = 256
	// preemptionRest is how long nobody preempts after a call came to nothing. Filter calls may be answered all the
	// while, so the breaker stays closed, and each call that is late holds up all profiles.
	preemptionRest = 5 * time.Second

	reasonPreempting = "Preempting"
)

// newPreemption returns the in-tree preemption with its default arguments. It
// serves the pods without GPUs, and evicts for those with.
func newPreemption(ctx context.Context, h fwk.Handle) (*defaultpreemption.DefaultPreemption, error) {
	var defaults kubeschedulerv1.DefaultPreemptionArgs
	configv1.SetDefaults_DefaultPreemptionArgs(&defaults)
	args := &config.DefaultPreemptionArgs{
		MinCandidateNodesPercentage: *defaults.MinCandidateNodesPercentage,
		MinCandidateNodesAbsolute:   *defaults.MinCandidateNodesAbsolute,
	}
	return defaultpreemption.New(ctx, runtime.Object(args), h, feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate))
}

// PreEnqueue holds a pod back while its victims are being evicted.
func (p *Plugin) PreEnqueue(ctx context.Context, pod *v1.Pod) *fwk.Status {
	return p.preemption.PreEnqueue(ctx, pod)
}

// preempt lets the service say which pods of lower priority have to go, and has
// them evicted. Success: the pod is nominated for a node. Otherwise it stays
// refused, and the result says whether an earlier nomination is to be cleared.
func (p *Plugin) preempt(ctx context.Context, state fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	schedulermetrics.PreemptionAttempts.Inc()
	c, logger := readCycle(state), klog.FromContext(ctx)
	if may, why := p.mayPreempt(ctx, c, pod, statuses); !may {
		logger.V(5).Info("The pod may not preempt", logPod, klog.KObj(pod), logPodUID, pod.UID, "why", why)
		return nil, c.stillRefused()
	}
	if p.mustRest(pod) {
		return nil, c.stillRefused()
	}
	candidates, err := p.candidates(ctx, state, pod, statuses)
	if err == nil && len(candidates) == 0 && p.link.books.nominatedNode(pod.UID) == "" {
		return nominate(""), c.stillRefused()
	}
	var budgeted []string
	if err == nil {
		budgeted, err = p.protected(func() [][]fwk.PodInfo { return evictionsOn(candidates, pod) })
	}
	if err != nil {
		logger.Error(err, "The pod cannot preempt now", logPod, klog.KObj(pod), logPodUID, pod.UID)
		return nil, c.stillRefused()
	}
	return p.negotiate(ctx, state, pod, candidates, budgeted)
}

// nominate returns the result that sets the pod's nominated node, or clears it.
func nominate(nodeName string) *fwk.PostFilterResult {
	return &fwk.PostFilterResult{NominatingInfo: &fwk.NominatingInfo{NominatedNodeName: nodeName, NominatingMode: fwk.ModeOverride}}
}

// mayPreempt decides as the in-tree preemption does: not if the pod's policy is Never, and not while pods that were
// evicted for it are still there.
func (p *Plugin) mayPreempt(ctx context.Context, c *cycle, pod *v1.Pod, statuses fwk.NodeToStatusReader) (bool, string) {
	asking := *pod
	asking.Status.NominatedNodeName = p.nominatedNode(pod)
	onNode := statuses.Get(asking.Status.NominatedNodeName)
	if own := c.verdict.refusal(asking.Status.NominatedNodeName); own.Code() == fwk.UnschedulableAndUnresolvable {
		onNode = own
	}
	return p.preemption.PodEligibleToPreemptOthers(ctx, &asking, onNode)
}

// mustRest reports whether nobody preempts at the moment. The pod is tried again after that.
func (p *Plugin) mustRest(pod *v1.Pod) bool {
	rests := p.link.preemptionRests.Load()
	if rests {
		p.link.waiting.noteFailed(pod.UID)
	}
	return rests
}

// nominatedNode returns where GPUs are held for the pod, also if the nomination was cleared since.
func (p *Plugin) nominatedNode(pod *v1.Pod) string {
	return orDefault(p.link.books.nominatedNode(pod.UID), pod.Status.NominatedNodeName)
}

// candidates returns the nodes where an eviction could help, by their index: nothing that stays after it speaks against
// them, as far as the other plugins know. Where there are very many, each cycle begins with others.
func (p *Plugin) candidates(ctx context.Context, state fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) (map[uint32]fwk.NodeInfo, error) {
	nodes, err := p.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil || len(nodes) == 0 {
		return nil, err
	}
	c := readCycle(state)
	worth := p.worthAsking(c, pod, nodes, statuses)
	found, trial := map[uint32]fwk.NodeInfo{}, tryingOut(state, &dryRun{})
	for some := range slices.Chunk(worth, candidatesMax) {
		curable := make([]bool, len(some))
		p.handle.Parallelizer().Until(ctx, len(some), func(i int) { curable[i] = p.isCurable(ctx, trial, pod, some[i]) }, Name)
		for i, node := range some {
			if index, known := c.verdict.table.lookup(node.Node().Name); known && curable[i] {
				found[index] = node
			}
		}
		if len(found) >= candidatesMax {
			break
		}
	}
	return found, nil
}

// worthAsking returns the nodes that nothing rules out for good and that an eviction would change, first the one where
// GPUs are held for the pod: without it in the set, the service lets them go.
func (p *Plugin) worthAsking(c *cycle, pod *v1.Pod, nodes []fwk.NodeInfo, statuses fwk.NodeToStatusReader) []fwk.NodeInfo {
	var first, worth []fwk.NodeInfo
	held := p.nominatedNode(pod)
	begin := c.attempt.GetNumber() * candidatesMax % uint64(len(nodes))
	for i := range nodes {
		node := nodes[(int(begin)+i)%len(nodes)]
		name := node.Node().Name
		index, known := c.verdict.table.lookup(name)
		if !known || !c.eligible.has(index) || c.verdict.unresolvable.has(index) ||
			statuses.Get(name).Code() == fwk.UnschedulableAndUnresolvable {
			continue
		}
		lower := func(info fwk.PodInfo) bool { return isLower(info.GetPod(), pod) }
		switch {
		case name == held:
			first = append(first, node)
		case slices.ContainsFunc(node.GetPods(), lower):
			worth = append(worth, node)
		}
	}
	return append(first, worth...)
}

// negotiate asks for one proposal after the other until one can be carried out.
// The service holds the GPUs of the newest; it lets them go when no node is left to ask about.
func (p *Plugin) negotiate(ctx context.Context, state fwk.CycleState, pod *v1.Pod, candidates map[uint32]fwk.NodeInfo, budgeted []string) (*fwk.PostFilterResult, *fwk.Status) {
	c := readCycle(state)
	for tried := 0; ; tried++ {
		if tried == proposalsMax {
			clear(candidates)
		}
		nodes := newBitmap(len(c.verdict.table.names))
		for index := range candidates {
			nodes.set(index, true)
		}
		answer, err := p.preemptCall(ctx, p.args.CallTimeout.Duration, preemptRequest(c, nodes, budgeted))
		if err != nil {
			p.preemptFailed(ctx, pod, err)
			return nil, c.stillRefused()
		}
		if answer.GetVerdict().GetCode() == pb.Verdict_CODE_UNSCHEDULABLE {
			p.link.books.letGo(pod.UID)
			klog.FromContext(ctx).V(3).Info("No eviction helps the pod", logPod, klog.KObj(pod), logPodUID, pod.UID, "why", answer.GetVerdict().GetReason())
			return nominate(""), c.stillRefused()
		}
		node, asked := candidates[answer.GetNode()]
		if !asked {
			p.preemptFailed(ctx, pod, p.nonsense("Preempt", "a node that it was not asked about"))
			return nil, c.stillRefused()
		}
		p.link.books.nominate(c, node.Node().Name, answer.GetGpus())
		refused := p.link.gangs.refuse(answer.GetEndedPlans())
		if done, ok := p.carryOut(ctx, state, pod, node, answer.GetVictimUids(), refused); ok {
			return nominate(node.Node().Name), p.tellPreempting(ctx, pod, node, done, len(answer.GetGpus()))
		}
		delete(candidates, answer.GetNode())
	}
}

func preemptRequest(c *cycle, nodes bitmap, budgeted []string) *pb.PreemptRequest {
	return &pb.PreemptRequest{
		Attempt:       c.attempt,
		Pod:           c.pod,
		Nodes:         &pb.NodeSet{Epoch: c.verdict.table.epoch, Bitmap: nodes, Known: uint32(len(c.verdict.table.names))},
		ProtectedUids: budgeted,
	}
}

// preemptCall returns an error for every verdict but OK and UNSCHEDULABLE.
func (p *Plugin) preemptCall(ctx context.Context, timeout time.Duration, request *pb.PreemptRequest) (*pb.PreemptResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := p.link.client.Preempt(ctx, request)
	if err != nil {
		return nil, err
	}
	switch code, reason := answer.GetVerdict().GetCode(), answer.GetVerdict().GetReason(); code {
	case pb.Verdict_CODE_OK, pb.Verdict_CODE_UNSCHEDULABLE:
		return answer, nil
	case pb.Verdict_CODE_RETRY:
		return nil, errors.New(orDefault(reason, reasonRetry))
	default:
		return nil, p.nonsense("Preempt", fmt.Sprintf("the verdict code %d", code))
	}
}

// preemptFailed leaves the pod refused, and has it tried again after a rest. From PostFilter an Error would not be retried.
func (p *Plugin) preemptFailed(ctx context.Context, pod *v1.Pod, err error) {
	klog.FromContext(ctx).Error(err, "The pod cannot preempt now", logPod, klog.KObj(pod), logPodUID, pod.UID)
	p.link.waiting.noteFailed(pod.UID)
	// A service that does not know the call will not know it in a while either. Reconnecting to another wakes all.
	p.link.restPreemption(status.Code(err) != codes.Unimplemented)
}

// restPreemption has nobody preempt for a while, and then wakes the pods that could not.
func (l *link) restPreemption(wake bool) {
	if l.preemptionRests.Swap(true) {
		return
	}
	l.run(func(ctx context.Context) {
		rested := sleep(ctx, preemptionRest)
		l.preemptionRests.Store(false)
		if rested && wake {
			l.waiting.wakeFailed()
		}
	})
}

// tellPreempting says what is evicted for the pod. Nothing is told where nobody is: the pod waits for what is on its way.
func (p *Plugin) tellPreempting(ctx context.Context, pod *v1.Pod, node fwk.NodeInfo, done *eviction, gpus int) *fwk.Status {
	klog.FromContext(ctx).V(2).Info("The pod is nominated for a node", logPod, klog.KObj(pod), logPodUID, pod.UID,
		logNode, klog.KObj(node.Node()), logVictims, klog.KObjSlice(done.victims), "gpus", gpus)
	if done.unneeded {
		return fwk.NewStatus(fwk.Success)
	}
	text := fmt.Sprintf("preempting %s on node %s", plural(len(done.victims)-len(done.elsewhere), "pod"), node.Node().Name)
	if len(done.elsewhere) > 0 {
		text += fmt.Sprintf(" and %s of the same groups on other nodes", plural(len(done.elsewhere), "pod"))
	}
	if gpus > 0 {
		text += " for " + plural(gpus, "GPU")
	}
	p.teller.recorder.Event(pod, v1.EventTypeNormal, reasonPreempting, text)
	return fwk.NewStatus(fwk.Success, text)
}

func plural(count int, word string) string {
	if count == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", count, word)
}
