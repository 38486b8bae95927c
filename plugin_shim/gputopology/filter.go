package gputopology

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

const (
	reasonNotFree     = "node(s) lack the free GPUs that the pod asks for"
	reasonNotPossible = "node(s) cannot have the GPUs that the pod asks for"
	reasonUnknownNode = "node(s) not known to the GPU topology service yet"
)

// Filter reads the verdict that PreFilter fetched, or in a dry run what would be
// true after the eviction. It stands for itself, because the framework tries a
// nominated node without regard to the candidates.
func (p *Plugin) Filter(_ context.Context, state fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	c := readCycle(state)
	switch name := node.Node().Name; {
	case c == nil || c.countsNothing():
		return nil
	case c.dryRun != nil:
		return c.dryRun.refusal(name, c.removed)
	case c.kind == cyclePlanned && name == c.planned:
		return nil
	case c.kind == cyclePlanned:
		return fwk.NewStatus(fwk.Unschedulable, reasonNotPlanned)
	default:
		return c.verdict.refusal(name)
	}
}

// refusal returns nil for a feasible node. Statuses are made anew because the
// framework writes the plugin's name into each, from several goroutines.
func (v verdict) refusal(nodeName string) *fwk.Status {
	i, known := v.table.lookup(nodeName)
	switch {
	case !known:
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reasonUnknownNode)
	case v.feasible.has(i):
		return nil
	case v.unresolvable.has(i):
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reasonNotPossible)
	default:
		return fwk.NewStatus(fwk.Unschedulable, reasonNotFree)
	}
}
