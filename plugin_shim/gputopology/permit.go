package gputopology

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

const reasonPlanEnded = "the plan of the pod's group has ended, for not all members could be reserved in time: the group is planned anew"

var errNotLetGo = errors.New("the members of the pod's group were not let go together, so it is not bound: is " + Name + " enabled for permit?")

// Permit has a member of a group wait until as many have come as its plan needs. The last one lets all go.
func (p *Plugin) Permit(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) (*fwk.Status, time.Duration) {
	c := readCycle(state)
	if c == nil || c.member == nil {
		return nil, 0
	}
	c.came = true
	patience := p.args.PermitTimeout.Duration
	switch p.link.gangs.come(pod.UID, c.member, patience) {
	case planLetGo:
		return nil, 0
	case planWaits:
		return fwk.NewStatus(fwk.Wait), patience
	default:
		return fwk.NewStatus(fwk.Unschedulable, reasonPlanEnded), 0
	}
}

// leavePlan takes the pod out of its plan. If none was let go the whole plan ends, and its name is returned.
func (p *Plugin) leavePlan(c *cycle, pod *v1.Pod) string {
	if c.member == nil || !p.link.gangs.leave(pod.UID, c.member) {
		return ""
	}
	if c.came {
		p.tell(pod, reasonPlanEnded)
	}
	return c.member.GetPlan()
}

// PostBind ends what is remembered of a member, and tells of a pod that was left alone: once, since it is bound once.
func (p *Plugin) PostBind(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) {
	switch c := readCycle(state); {
	case c == nil:
		p.tellLeftAlone(pod)
	case c.member != nil:
		p.link.gangs.bound(pod.UID, c.member)
		p.link.waiting.forget(pod.UID)
	}
}
