package gputopology

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

const (
	unreserveTimeout = 250 * time.Millisecond
	resyncTimeout    = time.Second
	// nominationLasts is how long the service holds what Preempt gave: NOMINATION_S in pyscheduler/core/nominations.py.
	nominationLasts = 5 * time.Minute
)

// unreserveBackoff spaces the repeats of calls that were not acknowledged: 0.1 s to 5 s.
var unreserveBackoff = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 1000, Cap: 5 * time.Second}

// keeper is what the books need of the service.
type keeper interface {
	Unreserve(ctx context.Context, in *pb.UnreserveRequest, opts ...grpc.CallOption) (*pb.UnreserveResponse, error)
	Resync(ctx context.Context, in *pb.ResyncRequest, opts ...grpc.CallOption) (*pb.ResyncResponse, error)
}

// books records what this process holds at the service, by pod UID, and what it
// has to give back. It numbers the attempts.
type books struct {
	service keeper
	lister  corev1listers.PodLister
	host    string
	// gangs knows the plans of groups; it is asked under the lock, and never asks the books.
	gangs *gangs
	// wake has pods tried again.
	wake func(uids ...types.UID)
	// kick asks the worker to send now.
	kick chan struct{}
	// sending is held while a call is under way: a Resync that was written before
	// an Unreserve must not arrive after it.
	sending sync.Mutex

	mu      sync.Mutex
	session int64
	// begun is the newest attempt; all up to decided have had their answer from Reserve, if they asked.
	begun, decided uint64
	held           map[types.UID]*holding
	// ranked: the session is compared with the newest one that the service knew of.
	ranked bool
	// endings are the Unreserves that are not acknowledged: of each pod the newest, and of each plan that ended by it.
	endings map[endingKey]*ending
	// nominated are the pods that Preempt holds GPUs for: a pod stays among them while it is reserved, for the service
	// goes on holding them if the Binding fails.
	nominated map[types.UID]*nomination
}

type holding struct {
	pod      *pb.Pod
	attempt  uint64
	node     string
	gpus     string
	doubtful bool
	// member tells to which plan a member of a group belongs. Nil for all others.
	member *pb.PlanMember
	// conflicting: others hold the GPUs, says the service.
	conflicting bool
}

type endingKey struct {
	uid types.UID
	// plan is empty unless the Unreserve ends one.
	plan string
}

type ending struct {
	*pb.UnreserveRequest
	// wake: the pod is tried again once the service knows.
	wake bool
}

// nomination is what Preempt holds for a pod.
type nomination struct {
	pod     *pb.Pod
	attempt uint64
	node    string
	gpus    string
	// until is when the service lets it go.
	until time.Time
}

func newBooks(service keeper, lister corev1listers.PodLister, session int64, host string) *books {
	return &books{
		service: service, lister: lister, session: session, host: host,
		kick: make(chan struct{}, 1),
		// 0 is no valid attempt, so a Resync before the first cycle carries 1.
		begun: 1, decided: 1,
		held: map[types.UID]*holding{}, endings: map[endingKey]*ending{}, nominated: map[types.UID]*nomination{},
	}
}

// begin numbers a new cycle. Cycles come one after the other, so the earlier ones are decided.
func (b *books) begin() *pb.Attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.decided = b.begun
	b.begun++
	return b.attempt(b.begun)
}

// outrank makes this session newer than the newest that the service knows of, which may be of a later time if the
// clock has stepped back since. Only once, at its start: one that goes on after others took over stays superseded.
func (b *books) outrank(newest int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ranked && newest >= b.session {
		b.session = newest + 1
	}
	b.ranked = true
}

// attempt needs the lock.
func (b *books) attempt(number uint64) *pb.Attempt {
	return &pb.Attempt{Session: b.session, Host: b.host, Number: number}
}

func (b *books) newest() *pb.Attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.attempt(b.begun)
}

// hold records the GPUs that Reserve gave.
func (b *books) hold(c *cycle, nodeName string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held[types.UID(c.pod.GetUid())] = &holding{
		pod: c.pod, attempt: c.attempt.GetNumber(), node: nodeName, gpus: c.annotations[annotationGPUs],
		member: c.member,
	}
	b.decided = max(b.decided, c.attempt.GetNumber())
}

// nominate records the GPUs that Preempt holds. Those of an earlier call on the same node are not held any longer for it.
func (b *books) nominate(c *cycle, nodeName string, gpus []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	uid := types.UID(c.pod.GetUid())
	until := time.Now().Add(nominationLasts)
	if before := b.nominated[uid]; before != nil && before.node == nodeName && time.Now().Before(before.until) {
		until = before.until
	}
	b.nominated[uid] = &nomination{pod: c.pod, attempt: c.attempt.GetNumber(), node: nodeName, gpus: inOneList(gpus), until: until}
}

// inOneList writes the GPUs in the form of the annotation pyscheduler.io/gpus, without saying which container gets which.
func inOneList(gpus []string) string {
	document, err := json.Marshal(map[string][]string{"": append([]string{}, gpus...)})
	if err != nil {
		panic(err) // A map of lists of strings: there is nothing that could fail.
	}
	return string(document)
}

// letGo records that Preempt holds nothing for the pod.
func (b *books) letGo(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.nominated, uid)
}

// nominatedNode returns where Preempt holds GPUs for the pod, empty if it holds none.
func (b *books) nominatedNode(uid types.UID) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := b.nominated[uid]; n != nil && time.Now().Before(n.until) {
		return n.node
	}
	return ""
}

// giveBack ends the attempt: its pod is certainly not bound.
func (b *books) giveBack(uid types.UID, attempt *pb.Attempt) { b.giveBackPlan(uid, attempt, "", false) }

// giveBackPlan ends the attempt, and by it the plan of its group, if one is named. The pod may be woken once the service
// knows: before that it would be told its place in the ended plan.
func (b *books) giveBackPlan(uid types.UID, attempt *pb.Attempt, plan string, wake bool) {
	b.mu.Lock()
	if h := b.held[uid]; h != nil && h.attempt == attempt.GetNumber() {
		delete(b.held, uid)
	}
	b.end(&ending{
		UnreserveRequest: &pb.UnreserveRequest{
			Attempt: attempt, PodUid: string(uid), Outcome: pb.UnreserveRequest_OUTCOME_NOT_BOUND, EndedPlan: plan,
		},
		wake: wake,
	})
	b.mu.Unlock()
	b.sendSoon()
}

// doubt declares the outcome of the attempt's Binding unknown.
func (b *books) doubt(uid types.UID, attempt *pb.Attempt) {
	b.mu.Lock()
	if h := b.held[uid]; h != nil && h.attempt == attempt.GetNumber() {
		h.doubtful = true
	}
	b.end(&ending{UnreserveRequest: &pb.UnreserveRequest{
		Attempt: attempt, PodUid: string(uid), Outcome: pb.UnreserveRequest_OUTCOME_UNKNOWN,
	}})
	b.mu.Unlock()
	b.sendSoon()
}

// noDoubt records that the pod is bound. It stays held until the scheduler's view shows that too.
func (b *books) noDoubt(uid types.UID, attempt *pb.Attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.held[uid]; h != nil && h.attempt == attempt.GetNumber() {
		h.doubtful = false
	}
}

// end needs the lock. A newer Unreserve of the pod replaces an earlier one, but the end of a plan has to be told in any case.
func (b *books) end(e *ending) {
	plain := endingKey{uid: types.UID(e.GetPodUid())}
	if other := b.endings[plain]; other == nil || other.GetAttempt().GetNumber() <= e.GetAttempt().GetNumber() {
		delete(b.endings, plain)
	} else if e.GetEndedPlan() == "" {
		return
	}
	b.endings[e.key()] = e
}

func (e *ending) key() endingKey {
	return endingKey{uid: types.UID(e.GetPodUid()), plan: e.GetEndedPlan()}
}

func (b *books) isDoubtful(uid types.UID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.held[uid]
	return h != nil && h.doubtful
}

func (b *books) isConflicting(uid types.UID, attempt *pb.Attempt) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.held[uid]
	return h != nil && h.attempt == attempt.GetNumber() && h.conflicting
}

func (b *books) sendSoon() { signal(b.kick) }

// run sends what is to be given back, at once and then with backoff until it is acknowledged.
func (b *books) run(ctx context.Context) {
	backoff := unreserveBackoff
	for {
		var repeat <-chan time.Time
		if b.flush(ctx) {
			backoff = unreserveBackoff
		} else {
			unreserveRetries.Inc()
			repeat = time.After(backoff.Step())
		}
		select {
		case <-ctx.Done():
			return
		case <-b.kick:
		case <-repeat:
		}
	}
}

// flush returns false if something is left. It stops early if the service is away.
func (b *books) flush(ctx context.Context) bool {
	done := true
	var known []types.UID
	for _, ending := range b.unacknowledged() {
		err := b.unreserve(ctx, ending)
		if err == nil {
			if ending.wake {
				known = append(known, types.UID(ending.GetPodUid()))
			}
			continue
		}
		done = false
		klog.FromContext(ctx).V(2).Info("Unreserve was not acknowledged and is repeated", logPodUID, ending.GetPodUid(),
			logAttempt, ending.GetAttempt().GetNumber(), logOutcome, ending.GetOutcome(), "err", err)
		if away := (*unavailableError)(nil); errors.As(err, &away) {
			break
		}
	}
	if len(known) > 0 {
		b.wake(known...)
	}
	return done
}

// unacknowledged returns the earliest first: of two of one pod the later counts.
func (b *books) unacknowledged() []*ending {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.SortedFunc(maps.Values(b.endings), func(x, y *ending) int {
		return cmp.Compare(x.GetAttempt().GetNumber(), y.GetAttempt().GetNumber())
	})
}

func (b *books) unreserve(ctx context.Context, e *ending) error {
	b.sending.Lock()
	defer b.sending.Unlock()
	ctx, cancel := context.WithTimeout(ctx, unreserveTimeout)
	defer cancel()
	if _, err := b.service.Unreserve(ctx, e.UnreserveRequest); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.endings[e.key()] == e {
		delete(b.endings, e.key())
	}
	return nil
}

// resync tells the service all that is held, and notes what it cannot take up.
func (b *books) resync(ctx context.Context) (*pb.ResyncResponse, error) {
	b.sending.Lock()
	defer b.sending.Unlock()
	ctx, cancel := context.WithTimeout(ctx, resyncTimeout)
	defer cancel()
	statement := b.statement()
	answer, err := b.service.Resync(ctx, statement)
	if err != nil {
		return nil, err
	}
	b.gangs.end(b.noteConflicts(answer.GetConflicts())...)
	b.forgetBound(statement.GetHeld())
	logger := klog.FromContext(ctx)
	if dropped := answer.GetDropped(); len(dropped) > 0 {
		logger.Info("The service dropped reservations that are no longer held", "podUIDs", dropped)
	}
	if conflicts := answer.GetConflicts(); len(conflicts) > 0 {
		logger.Info("Others hold the GPUs of these pods; they are placed anew", "podUIDs", conflicts)
	}
	return answer, nil
}

// statement lists what is held. Its attempt is the newest that is decided: the
// service drops what it holds for attempts up to it that is not listed.
func (b *books) statement() *pb.ResyncRequest {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forgetGone()
	request := &pb.ResyncRequest{Attempt: b.attempt(b.decided), ShimVersion: Version}
	for _, h := range b.held {
		request.Held = append(request.Held, &pb.Held{
			Pod: h.pod, Attempt: h.attempt, NodeName: h.node, Gpus: h.gpus, Doubtful: h.doubtful,
			Member: h.member, LetGo: h.member != nil && b.gangs.isLetGo(h.member.GetPlan()),
		})
	}
	for uid, n := range b.nominated {
		if b.held[uid] == nil {
			request.Held = append(request.Held, &pb.Held{Pod: n.pod, Attempt: n.attempt, NodeName: n.node, Gpus: n.gpus, Nominated: true})
		}
	}
	slices.SortFunc(request.Held, func(x, y *pb.Held) int { return int(x.GetAttempt()) - int(y.GetAttempt()) })
	return request
}

// forgetBound drops pods that the scheduler's own view shows bound, once the service was told of them: it may have
// started anew, and its view may be behind the scheduler's.
func (b *books) forgetBound(told []*pb.Held) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, each := range told {
		uid := types.UID(each.GetPod().GetUid())
		h := b.held[uid]
		if h != nil && h.attempt == each.GetAttempt() && !isUnbound(b.lister, h.pod.GetNamespace(), h.pod.GetName(), uid) {
			delete(b.held, uid)
		}
	}
}

// forgetGone drops pods that are gone by the scheduler's own view, and what is no longer held for nominated ones.
func (b *books) forgetGone() {
	for uid, h := range b.held {
		if !isThere(b.lister, h.pod.GetNamespace(), h.pod.GetName(), uid) {
			delete(b.held, uid)
		}
	}
	for uid, n := range b.nominated {
		if !time.Now().Before(n.until) || !isUnbound(b.lister, n.pod.GetNamespace(), n.pod.GetName(), uid) {
			delete(b.nominated, uid)
		}
	}
}

// noteConflicts returns the plans of these pods: they cannot be carried out.
func (b *books) noteConflicts(uids []string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var plans []string
	for _, uid := range uids {
		h := b.held[types.UID(uid)]
		if h == nil {
			delete(b.nominated, types.UID(uid))
			continue
		}
		h.conflicting = true
		if h.member != nil {
			plans = append(plans, h.member.GetPlan())
		}
	}
	return plans
}

// plans returns those of groups that something is held of, or the end of which is not acknowledged.
func (b *books) plans() sets.Set[string] {
	b.mu.Lock()
	defer b.mu.Unlock()
	names := sets.New[string]()
	for _, h := range b.held {
		names.Insert(h.member.GetPlan())
	}
	for key := range b.endings {
		names.Insert(key.plan)
	}
	return names
}
