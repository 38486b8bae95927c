package gputopology

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

// Reserve lets the service choose and hold the GPUs on the node. A launcher has none, and takes its place in its plan.
func (p *Plugin) Reserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	c := readCycle(state)
	switch {
	case c == nil || c.kind == cycleAdvisory:
		return nil
	case c.kind == cycleLauncher:
		c.mayHold = true
		return nil
	}
	node, known := c.verdict.table.lookup(nodeName)
	if !known {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reasonUnknownNode)
	}
	// If no answer comes the service may hold the GPUs all the same, so Unreserve has to free them.
	c.mayHold = true
	answer, err := p.reserveCall(ctx, c, node)
	if err != nil {
		return p.failed(pod, err)
	}
	klog.FromContext(ctx).V(4).Info("Reserve answered", logPod, klog.KObj(pod), logPodUID, pod.UID, logAttempt, c.attempt.GetNumber(),
		logNode, nodeName, logVerdict, answer.GetVerdict().GetCode(), logGeneration, answer.GetGeneration())
	return p.concludeReserve(c, pod, nodeName, answer)
}

func (p *Plugin) reserveCall(ctx context.Context, c *cycle, node uint32) (*pb.ReserveResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, p.args.CallTimeout.Duration)
	defer cancel()
	return p.link.client.Reserve(ctx, &pb.ReserveRequest{Attempt: c.attempt, Pod: c.pod, Epoch: c.verdict.table.epoch, Node: node})
}

func (p *Plugin) concludeReserve(c *cycle, pod *v1.Pod, nodeName string, answer *pb.ReserveResponse) *fwk.Status {
	switch code, reason := answer.GetVerdict().GetCode(), answer.GetVerdict().GetReason(); code {
	case pb.Verdict_CODE_OK:
		if answer.GetAnnotations()[annotationGPUs] == "" {
			return p.failed(pod, p.nonsense("Reserve", "no GPUs"))
		}
		if c.member != nil && answer.GetMember().GetPlan() == "" {
			return p.failed(pod, p.nonsense("Reserve", "no plan for a member of a group"))
		}
		if c.member != nil {
			c.member = answer.GetMember()
		}
		c.annotations = answer.GetAnnotations()
		p.link.books.hold(c, nodeName)
		return nil
	case pb.Verdict_CODE_UNSCHEDULABLE:
		return p.refuseReserve(c, pod, answer, fwk.NewStatus(fwk.Unschedulable, orDefault(reason, reasonNotFree)))
	case pb.Verdict_CODE_UNRESOLVABLE:
		return p.refuseReserve(c, pod, answer, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, orDefault(reason, reasonNotPossible)))
	case pb.Verdict_CODE_RETRY:
		c.mayHold = false
		p.link.gangs.clearSeatsOf(c.member.GetPlan())
		return p.failed(pod, errors.New(orDefault(reason, reasonRetry)))
	default:
		return p.failed(pod, p.nonsense("Reserve", fmt.Sprintf("the verdict code %d", code)))
	}
}

// refuseReserve wakes the pod at once if the Filter answer was older than the
// refusal: on the newer state another node may do, and nothing else would tell.
func (p *Plugin) refuseReserve(c *cycle, pod *v1.Pod, answer *pb.ReserveResponse, refusal *fwk.Status) *fwk.Status {
	c.mayHold = false
	if answer.GetGeneration() != c.verdict.generation {
		p.link.waiting.wake(pod.UID)
	}
	return refusal
}

// Unreserve gives back what Reserve holds or may hold. It returns at once; the
// books repeat the call until it is acknowledged. An outcome that is unknown
// is followed up until it is known. A plan of which nobody was let go ends whole.
func (p *Plugin) Unreserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) {
	c := readCycle(state)
	if c == nil || !c.mayHold {
		return
	}
	switch ended := p.leavePlan(c, pod); {
	case c.doubt != nil:
		p.link.books.doubt(pod.UID, c.attempt)
		p.link.settle(pod.UID, c.attempt, *c.doubt)
	case ended != "":
		p.link.books.giveBackPlan(pod.UID, c.attempt, ended, c.came)
	default:
		p.link.books.giveBack(pod.UID, c.attempt)
	}
}
