package gputopology

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

const (
	reasonNotPlanned = "node(s) are not the one that the pod has in the plan of its group"
	reasonReplan     = "The node that the pod has in the plan of its group lacks something else: the group is planned anew without it."
)

// planFor asks the service, in place of Filter, where a pod that belongs to a group has its place, and restricts the
// cycle to that node. When a plan is made the answer tells all places, so that the other members need not ask. A group is not placed by counting while the service is away: part of it could be bound.
func (p *Plugin) planFor(ctx context.Context, c *cycle, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	refused, untold := p.link.waiting.refusedNodes(pod.UID)
	if len(untold) == 0 && !p.link.client.breaker.isOpen() {
		if told, ok := p.link.gangs.takeSeat(pod.UID); ok {
			c.verdict = verdict{table: told.table, generation: told.generation}
			return p.takePlace(c, pod, told.member, &told.node)
		}
	}
	answer, t, err := ask(ctx, p, func(ctx context.Context, t *table) (*pb.PlanResponse, error) {
		return p.planCall(ctx, c, pod, nodes, t, untold)
	})
	if err != nil {
		return nil, p.failed(pod, err)
	}
	p.link.waiting.told(pod.UID, untold)
	c.verdict = verdict{table: t, generation: answer.GetGeneration()}
	klog.FromContext(ctx).V(4).Info("Plan answered", logPod, klog.KObj(pod), logPodUID, pod.UID, logAttempt, c.attempt.GetNumber(),
		logVerdict, answer.GetVerdict().GetCode(), logGeneration, answer.GetGeneration(), logPlan, answer.GetMember().GetPlan())
	if answer.GetVerdict().GetCode() == pb.Verdict_CODE_OK {
		p.link.gangs.seat(answer, t)
		return p.takePlace(c, pod, answer.GetMember(), answer.Node)
	}
	if found := refusedBy(c, refused); found != "" && answer.GetVerdict().GetCode() == pb.Verdict_CODE_UNSCHEDULABLE {
		return nil, p.refused(c, pod, fwk.Unschedulable, found)
	}
	c.preempt = answer.GetPreempt()
	return nil, p.notOK(c, pod, "Plan", answer.GetVerdict())
}

func (p *Plugin) planCall(ctx context.Context, c *cycle, pod *v1.Pod, nodes []fwk.NodeInfo, t *table, refused []string) (*pb.PlanResponse, error) {
	c.eligible = p.eligible.of(klog.FromContext(ctx), pod, nodes, t)
	ctx, cancel := context.WithTimeout(ctx, p.args.PlanTimeout.Duration)
	defer cancel()
	return p.link.client.Plan(ctx, &pb.PlanRequest{
		Attempt:      c.attempt,
		Pod:          c.pod,
		Eligible:     &pb.NodeSet{Epoch: t.epoch, Bitmap: c.eligible, Known: uint32(len(t.names))},
		Room:         roomFor(pod, nodes, c.eligible, t),
		RefusedNodes: refused,
	})
}

// takePlace restricts the cycle to the planned node. A member without GPUs, such as a launcher, may go anywhere.
func (p *Plugin) takePlace(c *cycle, pod *v1.Pod, member *pb.PlanMember, node *uint32) (*fwk.PreFilterResult, *fwk.Status) {
	c.member = member
	if c.member.GetPlan() == "" {
		return nil, p.failed(pod, p.nonsense("Plan", "a verdict that names no plan"))
	}
	if !asksForGPUs(pod, p.args.Resources) {
		c.kind = cycleLauncher
		return nil, nil
	}
	name, known := "", false
	if node != nil {
		name, known = c.verdict.table.name(*node)
	}
	if !known {
		return nil, p.failed(pod, p.nonsense("Plan", "a verdict that names no known node"))
	}
	c.kind, c.planned = cyclePlanned, name
	return &fwk.PreFilterResult{NodeNames: sets.New(name)}, nil
}

// refusedBy says what the other plugins found wrong with the nodes, if they refused the pod on every eligible one.
func refusedBy(c *cycle, refused map[string]string) string {
	counts, eligible := map[string]int{}, 0
	for i, name := range c.verdict.table.names {
		if !c.eligible.has(uint32(i)) {
			continue
		}
		why, known := refused[name]
		if !known {
			return ""
		}
		eligible++
		counts[why]++
	}
	if eligible == 0 {
		return ""
	}
	return unavailable(eligible, counts)
}

// replan remembers that the planned node will not do, and has the pod tried again at once: its group is planned anew
// without that node. The service leaves it out for longer each time, so this does not go on without end.
func (p *Plugin) replan(ctx context.Context, c *cycle, pod *v1.Pod, statuses fwk.NodeToStatusReader) *fwk.Status {
	why := orDefault(statuses.Get(c.planned).Message(), "node(s) cannot take the pod")
	p.link.waiting.refuse(pod.UID, c.planned, why)
	klog.FromContext(ctx).V(3).Info("Another plugin refused the planned node; the group is planned anew", logPod, klog.KObj(pod), logPodUID, pod.UID,
		logNode, c.planned, logPlan, c.member.GetPlan(), "why", why)
	p.tell(pod, reasonReplan)
	p.link.waiting.wake(pod.UID)
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reasonReplan)
}
