package gputopology

import (
	"k8s.io/apimachinery/pkg/types"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

// seat is where a plan has a member that has not been in a cycle since the plan was made.
type seat struct {
	node   uint32
	member *pb.PlanMember
	// table and generation are those of the answer that told it.
	table      *table
	generation uint64
}

// seat remembers where a new plan has the other members: they go there without a Plan call of their own.
func (g *gangs) seat(answer *pb.PlanResponse, t *table) {
	if len(answer.GetSeats()) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.heardOf(answer.GetMember().GetPlan())
	for _, told := range answer.GetSeats() {
		g.seats[types.UID(told.GetPodUid())] = seat{node: told.GetNode(), member: answer.GetMember(), table: t, generation: answer.GetGeneration()}
	}
}

// takeSeat returns where the member goes, once: if that comes to nothing, the service is asked.
func (g *gangs) takeSeat(uid types.UID) (seat, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	found, ok := g.seats[uid]
	delete(g.seats, uid)
	if ok {
		g.heardOf(found.member.GetPlan())
	}
	return found, ok
}

// clearSeats forgets all: a service that has started anew does not know the plans that nobody is reserved for.
func (g *gangs) clearSeats() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.seats)
}

// clearSeatsOf forgets those of one plan: one member was told that the plan is no more, or cannot be judged now.
func (g *gangs) clearSeatsOf(plan string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dropSeats(plan)
}

// dropSeats forgets those of a plan. It needs the lock.
func (g *gangs) dropSeats(plan string) {
	for uid, each := range g.seats {
		if each.member.GetPlan() == plan {
			delete(g.seats, uid)
		}
	}
}
