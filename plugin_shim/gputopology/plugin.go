// Package gputopology is the kube-scheduler plugin GPUTopology. It asks the
// Python service for every decision about GPUs and makes none itself.
//
// The way of a pod, one file per step:
//
//	prefilter.go   eligible nodes, the Filter call, at most 16 candidates
//	plan.go        in its place, for a pod that belongs to a group (membership.go): the Plan call, one node;
//	               room.go counts how many such pods the nodes have room for
//	filter.go      reads the answer for one node
//	postfilter.go  none of the candidates passed: all nodes are looked at next (the wide cycle)
//	preempt.go     none of all nodes passed: the Preempt call; eviction.go has the victims evicted,
//	               removed.go says what Filter answers while that is tried out
//	preempt_group.go
//	               the group lacks room that pods of lower priority have: the same for all its members together
//	prescore.go    the Score call, in wide cycles only
//	score.go       reads the scores
//	reserve.go     the Reserve call; Unreserve ends what it holds
//	permit.go      members of a group wait for each other; gang.go lets them go together, or none
//	bind.go        the Binding carries the chosen GPUs
//
// tell.go says why a pod waits, where the framework's own Events would not; alone.go
// why a pod that asks for a part of a GPU gets none chosen.
//
// Beside it run, per service: changes.go (wakes refused pods), books.go (what is
// held, and what must be given back), breaker.go (a service that is away costs
// nothing) and settle.go (bindings whose outcome is unknown). patience.go lets the
// scheduler's own informers go on as soon as the API server is back.
//
// Concurrency: the framework calls PreFilter, PostFilter, PreScore, Reserve and
// Permit from one goroutine; Filter and Score in parallel, reading only; Bind,
// PostBind and Unreserve also from one goroutine per pod that is being bound.
package gputopology

import (
	"context"
	"io"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
)

const (
	// Name is the plugin's name in a KubeSchedulerConfiguration.
	Name = "GPUTopology"
	// Version is compared with the service's; it is that of the Python package.
	Version = "0.1.0"
)

var (
	_ fwk.PreEnqueuePlugin  = (*Plugin)(nil)
	_ fwk.PreFilterPlugin   = (*Plugin)(nil)
	_ fwk.FilterPlugin      = (*Plugin)(nil)
	_ fwk.PostFilterPlugin  = (*Plugin)(nil)
	_ fwk.PreScorePlugin    = (*Plugin)(nil)
	_ fwk.ScorePlugin       = (*Plugin)(nil)
	_ fwk.ReservePlugin     = (*Plugin)(nil)
	_ fwk.PermitPlugin      = (*Plugin)(nil)
	_ fwk.BindPlugin        = (*Plugin)(nil)
	_ fwk.PostBindPlugin    = (*Plugin)(nil)
	_ fwk.EnqueueExtensions = (*Plugin)(nil)
	_ fwk.SignPlugin        = (*Plugin)(nil)
	_ io.Closer             = (*Plugin)(nil)
)

// Plugin is the instance of one profile. Instances that name the same endpoint
// share one link.
type Plugin struct {
	args     Args
	link     *link
	eligible *eligibility
	pods     corev1client.PodsGetter
	handle   fwk.Handle
	teller   *teller
	// preemption is the in-tree one, which the profile switches off: ours passes on to it what it is for.
	preemption *defaultpreemption.DefaultPreemption
	// evicting has the UIDs of the pods that are being evicted for groups.
	evicting sync.Map
}

// New is the plugin's factory. It fails for bad args only: the service may come later.
func New(ctx context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	args, err := decodeArgs(obj)
	if err != nil {
		return nil, err
	}
	preemption, err := newPreemption(ctx, h)
	if err != nil {
		return nil, err
	}
	registerMetrics()
	bePatient(ctx, h)
	link, err := acquireLink(ctx, args.Endpoint, h)
	if err != nil {
		return nil, err
	}
	return &Plugin{
		args: args, link: link, eligible: newEligibility(), pods: h.ClientSet().CoreV1(), handle: h,
		teller: newTeller(h.ClientSet()), preemption: preemption,
	}, nil
}

// Name returns the plugin's name.
func (p *Plugin) Name() string { return Name }

// Close ends the background work once the last instance of the endpoint is closed.
func (p *Plugin) Close() error {
	p.teller.stop()
	p.link.release()
	return nil
}
