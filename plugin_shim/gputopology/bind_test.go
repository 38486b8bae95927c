package gputopology

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	fwk "k8s.io/kube-scheduler/framework"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

// recordBinding lets the API server accept every Binding.
func recordBinding(api *fakeAPI) <-chan *v1.Binding {
	bindings := make(chan *v1.Binding, 16)
	api.mu.Lock()
	defer api.mu.Unlock()
	api.bind = func(w http.ResponseWriter, r *http.Request) {
		binding := &v1.Binding{}
		if err := json.NewDecoder(r.Body).Decode(binding); err != nil {
			panic(err)
		}
		bindings <- binding
		answerJSON(w, http.StatusCreated, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
	}
	return bindings
}

func answerJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// reserved takes a pod through PreFilter and Reserve.
func reserved(t *testing.T, service *fakeService) (*testBench, *fakeState, *v1.Pod) {
	t.Helper()
	service.filter, service.reserve = service.feasible(0), reserving(`{"main":["GPU-1"]}`)
	b := connected(t, service, nil)
	pod := gpuPod("p", 1)
	b.handle.see(t, pod)
	state, _, _ := b.preFilter(pod, nodesNamed(abc...))
	wantStatus(t, b.plugin.Reserve(b.ctx, state, pod, "a"), fwk.Success, "")
	return b, state, pod
}

func TestBindingCarriesTheGPUs(t *testing.T) {
	b, state, pod := reserved(t, newFakeService(abc...))
	bindings := recordBinding(b.api)
	wantStatus(t, b.plugin.Bind(b.ctx, state, pod, "a"), fwk.Success, "")
	binding := receive(t, bindings, "the Binding")
	if binding.UID != pod.UID || binding.Target.Name != "a" || binding.Annotations[annotationGPUs] != `{"main":["GPU-1"]}` || binding.Annotations[annotationPlacement] != "{}" {
		t.Errorf("got %v", binding)
	}
}

func TestBindingThatLostItsReplyIsFoundByALiveRead(t *testing.T) {
	service := newFakeService(abc...)
	b, state, pod := reserved(t, service)
	b.api.bind = func(w http.ResponseWriter, r *http.Request) {
		connection, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_ = connection.Close()
	}
	b.api.get = func(w http.ResponseWriter, _ *http.Request) {
		committed := pod.DeepCopy()
		committed.Kind, committed.APIVersion = "Pod", "v1"
		committed.Spec.NodeName, committed.Annotations = "a", readCycle(state).annotations
		answerJSON(w, http.StatusOK, committed)
	}
	wantStatus(t, b.plugin.Bind(b.ctx, state, pod, "a"), fwk.Success, "")
	if len(service.unreserves) > 0 {
		t.Error("the GPUs of a bound pod were given back")
	}
}

// scriptedPods answers each Bind with the next error, and each Get with the next sighting; the last one stays.
type scriptedPods struct {
	binds []error
	gets  []sighting
	tries int
}

var (
	errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New("no"))
	errTaken     = apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "p", errors.New("already assigned"))
	errLost      = fmt.Errorf("reading the answer: %w", syscall.ECONNRESET)
	errRefused   = fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	errServer    = apierrors.NewInternalError(errors.New("etcd"))
	errTimeout   = apierrors.NewTimeoutError("late", 1)
)

func next[T any](script *[]T) T {
	value := (*script)[0]
	if len(*script) > 1 {
		*script = (*script)[1:]
	}
	return value
}

func (s *scriptedPods) Bind(context.Context, *v1.Binding, metav1.CreateOptions) error {
	s.tries++
	return next(&s.binds)
}

func (s *scriptedPods) Get(_ context.Context, name string, _ metav1.GetOptions) (*v1.Pod, error) {
	pod := gpuPod(name, 1)
	switch next(&s.gets) {
	case podUnreadable:
		return nil, errLost
	case podElsewhere:
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
	case podOurs:
		pod.Spec.NodeName, pod.Annotations = "a", map[string]string{annotationGPUs: "{}", "other": "x"}
	}
	return pod, nil
}

func scripted(pods *scriptedPods) *binder {
	return newBinder(pods, bindingOf(gpuPod("p", 1), "a", map[string]string{annotationGPUs: "{}"}))
}

func TestOutcomeOfABinding(t *testing.T) {
	for name, test := range map[string]struct {
		binds []error
		gets  []sighting
		want  outcome
		tries int
	}{
		"accepted":                           {binds: []error{nil}, gets: []sighting{podFree}, want: bound, tries: 1},
		"refused":                            {binds: []error{errForbidden}, gets: []sighting{podFree}, want: notBound, tries: 1},
		"pod gone":                           {binds: []error{errTaken}, gets: []sighting{podElsewhere}, want: notBound, tries: 1},
		"conflict with ourselves":            {binds: []error{errTaken}, gets: []sighting{podOurs}, want: bound, tries: 1},
		"conflict, pod being deleted":        {binds: []error{errTaken}, gets: []sighting{podFree}, want: notBound, tries: 1},
		"conflict, and nothing can be read":  {binds: []error{errTaken}, gets: []sighting{podUnreadable}, want: unknown, tries: 3},
		"reply lost, committed":              {binds: []error{errLost}, gets: []sighting{podOurs}, want: bound, tries: 1},
		"request lost, second try":           {binds: []error{errLost, nil}, gets: []sighting{podFree}, want: bound, tries: 2},
		"request lost, then our own shows":   {binds: []error{errLost, errTaken}, gets: []sighting{podFree, podOurs}, want: bound, tries: 2},
		"request lost, refusal is no proof":  {binds: []error{errLost, errForbidden}, gets: []sighting{podFree}, want: unknown, tries: 3},
		"lost, lost, lost":                   {binds: []error{errLost}, gets: []sighting{podFree}, want: unknown, tries: 3},
		"server error, seen unbound":         {binds: []error{errServer}, gets: []sighting{podFree}, want: unknown, tries: 3},
		"server time-out, nothing readable":  {binds: []error{errTimeout}, gets: []sighting{podUnreadable}, want: unknown, tries: 3},
		"never sent: no server":              {binds: []error{errRefused}, gets: []sighting{podUnreadable}, want: notBound, tries: 3},
		"no server at first":                 {binds: []error{errRefused, nil}, gets: []sighting{podUnreadable}, want: bound, tries: 2},
		"refused, nothing readable":          {binds: []error{errForbidden}, gets: []sighting{podUnreadable}, want: notBound, tries: 3},
		"lost, found gone at the second try": {binds: []error{errLost}, gets: []sighting{podUnreadable, podElsewhere}, want: notBound, tries: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pods := &scriptedPods{binds: test.binds, gets: test.gets}
				got, err := scripted(pods).bind(t.Context())
				if got != test.want || (err == nil) != (test.want == bound) || pods.tries != test.tries {
					t.Errorf("outcome %d after %d tries, want %d after %d (%v)", got, pods.tries, test.want, test.tries, err)
				}
			})
		})
	}
}

func TestAPodThatLooksLikeOursIsCompared(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1.Pod)
		want   sighting
	}{
		"ours":              {change: func(*v1.Pod) {}, want: podOurs},
		"recreated":         {change: func(p *v1.Pod) { p.UID = "another" }, want: podElsewhere},
		"on another node":   {change: func(p *v1.Pod) { p.Spec.NodeName = "b" }, want: podElsewhere},
		"with other GPUs":   {change: func(p *v1.Pod) { p.Annotations[annotationGPUs] = "x" }, want: podElsewhere},
		"without a node":    {change: func(p *v1.Pod) { p.Spec.NodeName = "" }, want: podFree},
		"without its marks": {change: func(p *v1.Pod) { p.Annotations = nil }, want: podElsewhere},
	} {
		t.Run(name, func(t *testing.T) {
			pod := gpuPod("p", 1)
			pod.Spec.NodeName, pod.Annotations = "a", map[string]string{annotationGPUs: "{}"}
			test.change(pod)
			if got := newBinder(getterOf(pod), scripted(nil).binding).look(t.Context()); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

type onePod struct {
	podBinder
	pod *v1.Pod
}

func getterOf(pod *v1.Pod) podBinder { return onePod{pod: pod} }

func (o onePod) Get(context.Context, string, metav1.GetOptions) (*v1.Pod, error) { return o.pod, nil }

func TestDoubtEndsWhenTheBindingCanNoLongerLand(t *testing.T) {
	for name, test := range map[string]struct {
		gets []sighting
		want outcome
		// after is the least time that must have passed.
		after time.Duration
	}{
		"lands late":                   {gets: []sighting{podFree, podUnreadable, podFree, podOurs}, want: bound},
		"pod deleted":                  {gets: []sighting{podFree, podElsewhere}, want: notBound},
		"never lands":                  {gets: []sighting{podFree}, want: notBound, after: bindingLandsWithin},
		"unreadable is not not bound":  {gets: append(repeated(podUnreadable, 100), podOurs), want: bound, after: bindingLandsWithin},
		"free again after a long time": {gets: append(repeated(podUnreadable, 100), podFree), want: notBound, after: bindingLandsWithin},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := scripted(&scriptedPods{gets: test.gets})
				b.lastSent = time.Now()
				if got := b.await(t.Context(), bindingLandsWithin, settleBackoff); got != test.want {
					t.Errorf("got %d, want %d", got, test.want)
				}
				if passed := time.Since(b.lastSent); passed < test.after || test.after == 0 && passed >= bindingLandsWithin {
					t.Errorf("settled after %s, want it after %s", passed, test.after)
				}
			})
		})
	}
}

func repeated(s sighting, times int) []sighting {
	all := make([]sighting, times)
	for i := range all {
		all[i] = s
	}
	return all
}

func TestUnknownOutcomeIsDeclaredAndFollowedUp(t *testing.T) {
	t.Parallel()
	service := newFakeService(abc...)
	b, state, pod := reserved(t, service)
	gone := make(chan struct{})
	b.api.bind = func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, http.StatusGatewayTimeout, errTimeout.Status())
	}
	b.api.get = func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-gone:
			answerJSON(w, http.StatusNotFound, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "p").Status())
		default:
			free := pod.DeepCopy()
			free.Kind, free.APIVersion = "Pod", "v1"
			answerJSON(w, http.StatusOK, free)
		}
	}
	got := b.plugin.Bind(b.ctx, state, pod, "a")
	if got.Code() != fwk.Error || !strings.Contains(got.Message(), "binding to node a") {
		t.Fatalf("got %v", got)
	}
	b.plugin.Unreserve(b.ctx, state, pod, "a")
	if request := receive(t, service.unreserves, "the declaration"); request.GetOutcome() != pb.UnreserveRequest_OUTCOME_UNKNOWN {
		t.Errorf("got %v", request)
	}
	if held := b.plugin.link.books.statement().GetHeld(); len(held) != 1 || !held[0].GetDoubtful() {
		t.Errorf("held: %v", held)
	}
	_, _, retried := b.preFilter(pod, nodesNamed(abc...))
	wantStatus(t, retried, fwk.Error, errDoubtful.Error())
	close(gone)
	if request := receive(t, service.unreserves, "the settlement"); request.GetOutcome() != pb.UnreserveRequest_OUTCOME_NOT_BOUND ||
		request.GetAttempt().GetNumber() != readCycle(state).attempt.GetNumber() {
		t.Errorf("got %v", request)
	}
	eventually(t, "the end of the doubt", func() bool { return !b.plugin.link.books.isDoubtful(pod.UID) })
}

func TestPodsWhoseGPUsOthersHoldAreNotBound(t *testing.T) {
	service := newFakeService(abc...)
	b, state, pod := reserved(t, service)
	service.do(func() { service.conflict = []string{string(pod.UID)} })
	if _, err := b.plugin.link.books.resync(b.ctx); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, b.plugin.Bind(b.ctx, state, pod, "a"), fwk.Error, errConflict.Error())
}

func TestAnAPIServerIsNotFloodedWithBindings(t *testing.T) {
	b := newTestBench(t, nil)
	came, answers := make(chan string, 2*bindingsMax), make(chan struct{})
	b.api.bind = func(w http.ResponseWriter, r *http.Request) {
		came <- r.URL.Path
		<-answers
		answerJSON(w, http.StatusCreated, metav1.Status{Status: metav1.StatusSuccess})
	}
	results := make(chan *fwk.Status, bindingsMax+1)
	for i := range bindingsMax + 1 {
		state := newState()
		state.Write(stateKey, &cycle{attempt: &pb.Attempt{Number: uint64(i + 1)}})
		go func() { results <- b.plugin.Bind(b.ctx, state, gpuPod(fmt.Sprintf("p%d", i), 1), "a") }()
	}
	for range bindingsMax {
		receive(t, came, "a Binding")
	}
	if len(b.plugin.link.bindings) != bindingsMax || len(came) > 0 {
		t.Errorf("%d are counted, %d more are under way", len(b.plugin.link.bindings), len(came))
	}
	answers <- struct{}{}
	receive(t, came, "the last Binding")
	close(answers)
	for range bindingsMax + 1 {
		wantStatus(t, receive(t, results, "an outcome"), fwk.Success, "")
	}
}

func TestABindingThatWaitsEndsWithItsCycle(t *testing.T) {
	b := newTestBench(t, nil)
	for range bindingsMax {
		b.plugin.link.bindings <- struct{}{}
	}
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	state := newState()
	state.Write(stateKey, &cycle{attempt: &pb.Attempt{Number: 1}})
	wantStatus(t, b.plugin.Bind(ctx, state, gpuPod("p", 1), "a"), fwk.Error, context.Canceled.Error())
}
