package gputopology

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

const stateKey fwk.StateKey = Name

type cycleKind int

const (
	// unanswered cycles have no verdict: the call failed.
	cycleUnanswered cycleKind = iota
	// refused cycles end in PreFilter: no eligible node is feasible.
	cycleRefused
	// narrow cycles look at the candidates that the service named.
	cycleNarrow
	// wide cycles look at all nodes, because no candidate passed the other plugins before.
	cycleWide
	// advisory cycles count GPUs only, because the service is away and the args allow it.
	cycleAdvisory
	// planned cycles look at the one node that the pod has in the plan of its group.
	cyclePlanned
	// launcher cycles are of members of a group without GPUs: they may go anywhere.
	cycleLauncher
)

// cycle is what the extension points of one pod's scheduling cycle hand on.
// A pod without one asks for no GPUs and belongs to no group.
type cycle struct {
	kind    cycleKind
	attempt *pb.Attempt
	pod     *pb.Pod
	// eligible are the nodes that the service was asked about.
	eligible bitmap
	verdict  verdict
	// scores holds the scores of the ranked nodes by index; nodes that are not in it score 0.
	scores map[uint32]int64
	// planned is the node of a planned cycle.
	planned string
	// member tells to which plan a member of a group belongs. Nil for all others.
	member *pb.PlanMember
	// preempt: the group was refused for room that pods of lower priority have.
	preempt bool
	// mayHold is true once a Reserve call was sent that was not refused, or a launcher has taken its place in its plan.
	mayHold bool
	// came is true once the member has come to Permit.
	came bool
	// annotations go onto the Binding.
	annotations map[string]string
	// doubt is set if the outcome of the Binding is unknown.
	doubt *doubt
	// dryRun is set, on clones, while an eviction is tried out; removed are the pods that are gone there.
	dryRun  *dryRun
	removed sets.Set[types.UID]
}

// verdict is the answer to the Filter or Plan call, with the table that its bits refer to.
type verdict struct {
	table        *table
	generation   uint64
	feasible     bitmap
	unresolvable bitmap
}

// Clone copies what later steps may set; the answer itself is read-only and shared.
func (c *cycle) Clone() fwk.StateData {
	clone := *c
	clone.removed = c.removed.Clone()
	return &clone
}

// countsNothing reports whether the cycle leaves GPUs aside, so that every node passes.
func (c *cycle) countsNothing() bool { return c.kind == cycleAdvisory || c.kind == cycleLauncher }

// readCycle returns nil for a pod that asks for no GPUs and belongs to no group.
func readCycle(state fwk.CycleState) *cycle {
	data, err := state.Read(stateKey)
	if err != nil {
		return nil
	}
	c, _ := data.(*cycle)
	return c
}
