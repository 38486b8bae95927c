package gputopology

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

func TestAPlanIsNotLetGoOnceItsFirstMembersWaitIsOver(t *testing.T) {
	for name, test := range map[string]struct {
		after time.Duration
		want  planState
		told  string
	}{
		"just in time": {after: time.Minute - 1, want: planLetGo, told: allowed},
		"too late":     {after: time.Minute, want: planEnded, told: reasonPlanEnded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				queue := &fakePermitQueue{}
				g := newGangs(discard, queue)
				g.come("first", planOf("p1", 2), time.Minute)
				waiting := queue.begin("first")
				time.Sleep(test.after)
				if got := g.come("last", planOf("p1", 2), time.Minute); got != test.want {
					t.Errorf("got %d, want %d", got, test.want)
				}
				wantTold(t, waiting, test.told)
			})
		})
	}
}

func TestNeededIsWhatTheServiceSaysLast(t *testing.T) {
	g := newGangs(discard, &fakePermitQueue{})
	g.come("a", planOf("p1", 3), time.Minute)
	if got := g.come("b", planOf("p1", 2), time.Minute); got != planLetGo {
		t.Errorf("got %d", got)
	}
}

func TestAPlanIsRememberedWhileItMatters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGangs(discard, &fakePermitQueue{})
		g.come("bound", planOf("bound", 1), time.Minute)
		g.bound("bound", planOf("bound", 1))
		g.come("binding", planOf("binding", 1), time.Minute)
		g.end("ended", "held")
		g.come("waits", planOf("waits", 2), time.Hour)
		g.prune(nil)
		if len(g.plans) != 5 {
			t.Errorf("a cycle that is under way may still come with any of them; left: %v", g.plans)
		}
		time.Sleep(planRemembered + 1)
		g.prune(sets.New("held"))
		if len(g.plans) != 3 || g.plans["binding"] == nil || g.plans["held"] == nil || g.plans["waits"] == nil {
			t.Errorf("left: %v", g.plans)
		}
	})
}

// step is how fine the times of a run are: coarse, so that much happens at once.
const step = 50 * time.Millisecond

// groupRun is one run of the state of groups: members come, fail and are bound, and plans are ended, all at any time.
type groupRun struct {
	t     *testing.T
	queue *fakePermitQueue
	gangs *gangs

	mu sync.Mutex
	// came are the members that have gone to Permit, by plan; letGo and ended what was said of it to any.
	came         map[string]sets.Set[types.UID]
	letGo, ended map[string]bool
}

// note keeps the invariant: nobody of a plan is let go, or as many as are needed had come; and what is decided stays.
func (r *groupRun) note(m *pb.PlanMember, letGo bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if letGo {
		r.letGo[m.GetPlan()] = true
	} else {
		r.ended[m.GetPlan()] = true
	}
	if letGo && len(r.came[m.GetPlan()]) < int(m.GetNeeded()) {
		r.t.Errorf("%s: let go when %d of %d had come", m.GetPlan(), len(r.came[m.GetPlan()]), m.GetNeeded())
	}
	if r.letGo[m.GetPlan()] && r.ended[m.GetPlan()] {
		r.t.Errorf("%s: let go, and ended", m.GetPlan())
	}
}

// attempt takes one member from Permit to the end of its binding.
func (r *groupRun) attempt(uid types.UID, m *pb.PlanMember, chance *rand.Rand) {
	r.mu.Lock()
	if r.came[m.GetPlan()] == nil {
		r.came[m.GetPlan()] = sets.New[types.UID]()
	}
	r.came[m.GetPlan()].Insert(uid)
	r.mu.Unlock()
	state := r.gangs.come(uid, m, time.Minute)
	if state == planWaits {
		time.Sleep(time.Duration(chance.IntN(3)) * step)
		waiting := r.queue.begin(uid)
		var timeout <-chan time.Time
		if chance.IntN(10) == 0 {
			timeout = time.After(time.Duration(chance.IntN(30)) * step)
		}
		state = planEnded
		select {
		case told := <-waiting.told:
			if told == allowed {
				state = planLetGo
			}
			r.note(m, state == planLetGo)
		case <-timeout:
		}
		r.queue.end(uid)
	} else {
		r.note(m, state == planLetGo)
	}
	if state == planLetGo && !r.gangs.isLetGo(m.GetPlan()) {
		r.t.Errorf("%s: a member that was let go may not be bound", m.GetPlan())
	}
	if state == planLetGo && chance.IntN(4) > 0 {
		r.gangs.bound(uid, m)
		return
	}
	r.note(m, !r.gangs.leave(uid, m))
}

func TestAPlanIsLetGoWholeOrNotAtAll(t *testing.T) {
	const plans, members, attempts = 12, 8, 3
	letGo, ended := 0, 0
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			r := &groupRun{t: t, queue: &fakePermitQueue{}, came: map[string]sets.Set[types.UID]{}, letGo: map[string]bool{}, ended: map[string]bool{}}
			r.gangs = newGangs(discard, r.queue)
			over := make(chan struct{})
			var background, all sync.WaitGroup
			background.Go(func() {
				for {
					select {
					case <-over:
						return
					case <-time.After(settleInterval):
						r.gangs.settle()
						r.gangs.prune(nil)
					}
				}
			})
			chance := rand.New(rand.NewPCG(seed, 0))
			for i := range plans {
				m := planOf(fmt.Sprintf("p%d", i), uint32(1+chance.IntN(members)))
				all.Go(func() {
					time.Sleep(time.Duration(rand.New(rand.NewPCG(seed, uint64(i))).IntN(60)) * step)
					r.gangs.end(m.GetPlan())
				})
				for j := range members {
					own := rand.New(rand.NewPCG(seed, uint64(1000+i*members+j)))
					all.Go(func() {
						for range attempts {
							time.Sleep(time.Duration(own.IntN(30)) * step)
							r.attempt(types.UID(fmt.Sprintf("%d-%d", i, j)), m, own)
						}
					})
				}
			}
			all.Wait()
			close(over)
			background.Wait()
			letGo, ended = letGo+len(r.letGo), ended+len(r.ended)
			for name, p := range r.gangs.plans {
				if len(p.members) > 0 {
					t.Errorf("%s: %d members were never forgotten", name, len(p.members))
				}
			}
		})
	}
	if letGo < 100 || ended < 100 {
		t.Errorf("%d plans were let go and %d ended: too few to show anything", letGo, ended)
	}
}
