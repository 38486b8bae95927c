package gputopology

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

const (
	// settleInterval is how often members are looked for that began to wait just after their plan was decided.
	settleInterval = 200 * time.Millisecond
	// planRemembered is how long a decided plan is remembered after its last member: longer than a cycle takes that was
	// told of it before.
	planRemembered = time.Minute
)

type planState int

const (
	// planWaits: not as many members have come as are needed.
	planWaits planState = iota
	// planLetGo: enough had come. From then on each member succeeds or fails alone.
	planLetGo
	// planEnded: a member was lost, or the wait took too long, or the service ended it, before enough had come.
	planEnded
)

// permitQueue is what gangs need of the framework.
type permitQueue interface {
	GetWaitingPod(uid types.UID) fwk.WaitingPod
}

// gangs knows the plans whose members come to Permit, and keeps the promise that a plan's members are let go together or
// not at all: a plan waits, and is then let go or ended, for good.
//
// A member begins to wait only after its Permit has returned, so that the framework may not know it yet when its plan
// is decided. It is told then by settle, which looks for it again and again.
type gangs struct {
	logger klog.Logger
	queue  permitQueue

	mu    sync.Mutex
	plans map[string]*plan
	// seats are of members that have not come yet.
	seats map[types.UID]seat
}

type plan struct {
	state planState
	// began is when the first member came; waitsUntil when its patience ends.
	began, waitsUntil time.Time
	// members are those between Permit and the end of their binding. True: it knows how the plan was decided.
	members map[types.UID]bool
	// refused are those that were members when it ended.
	refused []types.UID
	// touched is when the plan was last heard of.
	touched time.Time
}

func newGangs(logger klog.Logger, queue permitQueue) *gangs {
	return &gangs{logger: logger, queue: queue, plans: map[string]*plan{}, seats: map[types.UID]seat{}}
}

// come counts a member that has come to Permit, each once, and returns what is true of its plan then.
func (g *gangs) come(uid types.UID, m *pb.PlanMember, patience time.Duration) planState {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.heardOf(m.GetPlan())
	if p.began.IsZero() {
		p.began, p.waitsUntil = p.touched, p.touched.Add(patience)
	}
	// Those that came first are being refused by now.
	if p.state == planWaits && !p.touched.Before(p.waitsUntil) {
		g.decide(m.GetPlan(), p, planEnded)
	}
	if p.state == planEnded {
		return planEnded
	}
	p.members[uid] = true // Permit itself tells it.
	switch {
	case p.state == planLetGo:
	case len(p.members) < int(m.GetNeeded()):
		p.members[uid] = false
	default:
		if m.GetNeeded() > 0 {
			plansLetGo.Inc()
			planWaitSeconds.Observe(p.touched.Sub(p.began).Seconds())
		}
		g.decide(m.GetPlan(), p, planLetGo)
	}
	return p.state
}

// leave takes out a member that is not bound, and returns true if its plan has ended: by this, or before.
func (g *gangs) leave(uid types.UID, m *pb.PlanMember) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.heardOf(m.GetPlan())
	delete(p.members, uid)
	switch {
	case p.state == planWaits && m.GetNeeded() == 0:
		g.decide(m.GetPlan(), p, planLetGo)
	case p.state == planWaits:
		g.decide(m.GetPlan(), p, planEnded)
	}
	return p.state == planEnded
}

// bound takes out a member whose binding has succeeded.
func (g *gangs) bound(uid types.UID, m *pb.PlanMember) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.heardOf(m.GetPlan()).members, uid)
}

// end ends the plans of which nobody was let go. Members that come later are refused.
func (g *gangs) end(names ...string) {
	for _, name := range names {
		g.endOne(name)
	}
}

func (g *gangs) endOne(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch p := g.heardOf(name); p.state {
	case planWaits:
		g.decide(name, p, planEnded)
	case planLetGo:
		g.logger.Info("A plan whose members were let go cannot end any more", logPlan, name)
	}
}

// refuse ends plans as end does, and returns who waited for them: the scheduler counts on what these have for a moment more.
func (g *gangs) refuse(names []string) sets.Set[types.UID] {
	g.end(names...)
	g.mu.Lock()
	defer g.mu.Unlock()
	waited := sets.New[types.UID]()
	for _, name := range names {
		waited.Insert(g.plans[name].refused...)
	}
	return waited
}

// isLetGo reports whether the plan's members may be bound.
func (g *gangs) isLetGo(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.plans[name]
	return p != nil && p.state == planLetGo
}

// settle tells the members of decided plans that were not known to wait when that was decided.
func (g *gangs) settle() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.plans {
		g.tell(p)
	}
}

// prune forgets decided plans that nobody belongs to any more. Those in use are named by what is held, or is to be given back.
func (g *gangs) prune(inUse sets.Set[string]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, p := range g.plans {
		if len(p.members) == 0 && !inUse.Has(name) && time.Since(p.touched) > planRemembered {
			delete(g.plans, name)
			g.dropSeats(name)
		}
	}
}

// heardOf needs the lock, as all that follow.
func (g *gangs) heardOf(name string) *plan {
	p := g.plans[name]
	if p == nil {
		p = &plan{members: map[types.UID]bool{}}
		g.plans[name] = p
	}
	p.touched = time.Now()
	return p
}

func (g *gangs) decide(name string, p *plan, state planState) {
	p.state = state
	if state == planEnded {
		plansEnded.Inc()
		p.refused = slices.Collect(maps.Keys(p.members))
		g.dropSeats(name)
	}
	g.logger.V(2).Info("A plan is decided", logPlan, name, "letGo", state == planLetGo, "members", len(p.members))
	g.tell(p)
}

// tell lets the members go, or refuses them, each once.
func (g *gangs) tell(p *plan) {
	if p.state == planWaits {
		return
	}
	for uid, told := range p.members {
		if told {
			continue
		}
		waiting := g.queue.GetWaitingPod(uid)
		if waiting == nil {
			continue
		}
		if p.state == planLetGo {
			waiting.Allow(Name)
		} else {
			waiting.Reject(Name, reasonPlanEnded)
		}
		p.members[uid] = true
	}
}
