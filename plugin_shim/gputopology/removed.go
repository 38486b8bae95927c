package gputopology

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
)

// dryRun is what Filter answers by, in place of the verdict, while an eviction
// is tried out on a clone of the cycle.
type dryRun struct {
	// node is that of the service's proposal. Empty while only the other plugins are asked: then every node passes.
	node string
	// victims are the pods that have to be gone from it: all of them, for only then are its GPUs those that were proposed.
	victims []types.UID
}

func (d *dryRun) refusal(nodeName string, removed sets.Set[types.UID]) *fwk.Status {
	if d.node == "" || nodeName == d.node && removed.HasAll(d.victims...) {
		return nil
	}
	return fwk.NewStatus(fwk.Unschedulable, reasonNotFree)
}

// tryingOut returns a clone of the cycle's state in which Filter answers by the dry run.
func tryingOut(state fwk.CycleState, d *dryRun) fwk.CycleState {
	trial := state.Clone()
	readCycle(trial).dryRun = d
	return trial
}

// PreFilterExtensions lets the cycle know which pods an eviction that is tried out removes.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return removals{} }

type removals struct{}

// RemovePod notes that the pod is removed. The framework calls it for clones of the cycle's state only.
func (removals) RemovePod(_ context.Context, state fwk.CycleState, _ *v1.Pod, gone fwk.PodInfo, _ fwk.NodeInfo) *fwk.Status {
	if c := readCycle(state); c != nil {
		if c.removed == nil {
			c.removed = sets.New[types.UID]()
		}
		c.removed.Insert(gone.GetPod().UID)
	}
	return nil
}

// AddPod takes back that the pod is removed. Nominated pods come here too: their
// GPUs are held by the service, so nothing is to be added.
func (removals) AddPod(_ context.Context, state fwk.CycleState, _ *v1.Pod, back fwk.PodInfo, _ fwk.NodeInfo) *fwk.Status {
	if c := readCycle(state); c != nil {
		c.removed.Delete(back.GetPod().UID)
	}
	return nil
}

// uidsOn returns those of the pods that the scheduler sees on the node. Others
// are gone from it already: the service's view may be a moment older.
func uidsOn(node fwk.NodeInfo, uids []string) []types.UID {
	var present []types.UID
	for _, info := range node.GetPods() {
		if slices.Contains(uids, string(info.GetPod().UID)) {
			present = append(present, info.GetPod().UID)
		}
	}
	return present
}
