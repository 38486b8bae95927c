package gputopology

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

func TestChangesWakeThePodsTheyName(t *testing.T) {
	service := newFakeService(abc...)
	service.filter = service.refusing(pb.Verdict_CODE_UNSCHEDULABLE, "full")
	b := connected(t, service, nil)
	for _, name := range []string{"p", "q"} {
		b.preFilter(gpuPod(name, 1), nodesNamed(abc...))
	}
	service.changes <- &pb.ChangesResponse{Epoch: 7, TableSize: 3, Generation: 9, PodUids: []string{"uid-of-q", "uid-of-nobody"}}
	if woken := receive(t, b.handle.woken, "the wake-up"); woken != "uid-of-q" {
		t.Errorf("woke %s", woken)
	}
	if len(b.handle.woken) > 0 {
		t.Error("woke another pod too")
	}
}

func TestAChangeThatCrossesTheRefusalIsNotLost(t *testing.T) {
	service := newFakeService(abc...)
	b := connected(t, service, nil)
	service.filter = func(request *pb.FilterRequest) (*pb.FilterResponse, error) {
		service.changes <- &pb.ChangesResponse{Epoch: 7, TableSize: 3, Generation: 9, PodUids: []string{request.GetPod().GetUid()}}
		receive(t, b.handle.woken, "the wake-up during the cycle")
		return service.refusing(pb.Verdict_CODE_UNSCHEDULABLE, "full")(request)
	}
	_, _, got := b.preFilter(gpuPod("p", 1), nodesNamed(abc...))
	wantStatus(t, got, fwk.Unschedulable, "full")
}

func TestChangesExtendTheTable(t *testing.T) {
	service := newFakeService(abc...)
	b := connected(t, service, nil)
	service.do(func() { service.names = append(service.names, "d") })
	service.changes <- &pb.ChangesResponse{Epoch: 7, TableSize: 4, Kinds: []pb.ChangesResponse_Kind{pb.ChangesResponse_KIND_NODES}}
	eventually(t, "node d", func() bool { _, known := b.plugin.link.tables.current().lookup("d"); return known })
	service.do(func() { service.epoch, service.names = 8, []string{"z"} })
	service.changes <- &pb.ChangesResponse{Epoch: 8, TableSize: 1}
	eventually(t, "epoch 8", func() bool { return b.plugin.link.tables.current().epoch == 8 })
	if _, known := b.plugin.link.tables.current().lookup("a"); known {
		t.Error("the table of another epoch kept its names")
	}
}

func TestAServiceThatComesBackWakesEverybody(t *testing.T) {
	t.Parallel()
	service := newFakeService(abc...)
	service.filter = service.refusing(pb.Verdict_CODE_UNSCHEDULABLE, "full")
	b, _, held := reserved(t, service)
	service.do(func() { service.filter = service.refusing(pb.Verdict_CODE_UNSCHEDULABLE, "full") })
	b.preFilter(gpuPod("refused", 1), nodesNamed(abc...))
	service.server.Stop()
	eventually(t, "the loss", func() bool {
		_, _, got := b.preFilter(gpuPod("failed", 1), nodesNamed(abc...))
		return got.Code() == fwk.Error
	})

	again := newFakeService("c", "b", "a")
	again.epoch = 8
	again.filter = again.refusing(pb.Verdict_CODE_UNSCHEDULABLE, "full")
	again.serve(t, b.socket)
	statement := receive(t, again.resyncs, "Resync")
	if len(statement.GetHeld()) != 1 || statement.GetHeld()[0].GetPod().GetUid() != string(held.UID) {
		t.Errorf("held: %v", statement.GetHeld())
	}
	if first := receive(t, b.handle.woken, "a first pod"); first != "uid-of-failed" {
		t.Errorf("%s is tried first, want the one that failed", first)
	}
	b.preFilter(gpuPod("failed", 1), nodesNamed(abc...))
	woken := map[types.UID]bool{}
	for !woken["uid-of-refused"] || !woken["uid-of-failed"] {
		woken[receive(t, b.handle.woken, "the wake-up")] = true
	}
	if b.plugin.link.tables.current().epoch != 8 {
		t.Error("the pods were woken before the new table was there")
	}
}

func TestBreakerOpensAndCloses(t *testing.T) {
	t.Parallel()
	service := newFakeService(abc...)
	b := connected(t, service, map[string]string{"filterTimeout": "50ms"})
	service.filter = func(request *pb.FilterRequest) (*pb.FilterResponse, error) {
		return nil, status.Error(codes.DeadlineExceeded, "stopped")
	}
	service.health.SetServingStatus(pb.SchedulerPlugin_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_NOT_SERVING)
	pod := gpuPod("p", 1)
	for range breakerThreshold + 5 {
		_, _, got := b.preFilter(pod, nodesNamed(abc...))
		wantStatus(t, got, fwk.Error, (&unavailableError{endpoint: b.plugin.args.Endpoint}).Error())
	}
	if asked := service.count("Filter"); asked != breakerThreshold {
		t.Errorf("the service was asked %d times, want %d", asked, breakerThreshold)
	}
	service.do(func() { service.filter = service.feasible(0) })
	service.health.SetServingStatus(pb.SchedulerPlugin_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_SERVING)
	if woken := receive(t, b.handle.woken, "the wake-up"); woken != pod.UID {
		t.Errorf("woke %s", woken)
	}
	_, _, got := b.preFilter(pod, nodesNamed(abc...))
	wantStatus(t, got, fwk.Success, "")
}

func TestBreakerStates(t *testing.T) {
	var shown []bool
	b := newBreaker(func(open bool) { shown = append(shown, open) })
	record := func(answers ...bool) {
		for _, answered := range answers {
			b.record(answered, true)
		}
	}
	if record(false, false, true, false, false); b.isOpen() {
		t.Error("open after two failures in a row")
	}
	if record(false); !b.isOpen() {
		t.Error("closed after three failures in a row")
	}
	<-b.opened
	b.close()
	if record(false); !b.isOpen() {
		t.Error("the first call after closing failed, and it stayed closed")
	}
	<-b.opened
	b.close()
	b.record(true, false)
	if len(b.recovered) != 0 {
		t.Error("recovered before a call within a cycle was answered")
	}
	if record(true, false, false); b.isOpen() || len(b.recovered) != 1 {
		t.Error("a success did not count")
	}
	if want := 4; len(shown) != want {
		t.Errorf("shown %v, want %d changes", shown, want)
	}
}

// awayPlugin is a plugin whose breaker is open.
func awayPlugin(tb testing.TB) *Plugin {
	client, err := dial("unix:///nowhere")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = client.conn.Close() })
	for range breakerThreshold {
		client.breaker.record(false, true)
	}
	args := defaultArgs()
	args.Endpoint = client.endpoint
	return &Plugin{args: args, eligible: newEligibility(), link: &link{
		client: client, tables: newTables(client, client.endpoint, func(int64) {}), waiting: newWaiting(discard, nil), books: newBooks(client, nil, 1, "host"),
	}}
}

func TestAnOpenBreakerCostsNoDeadline(t *testing.T) {
	plugin := awayPlugin(t)
	nodes := nodesNamed(abc...)
	start := time.Now()
	for range 1000 {
		if _, got := plugin.PreFilter(context.Background(), newState(), gpuPod("p", 1), nodes); got.Code() != fwk.Error {
			t.Fatalf("got %v", got)
		}
	}
	if each := time.Since(start) / 1000; each > time.Millisecond {
		t.Errorf("%s each", each)
	}
}

func TestInstancesOfOneEndpointShareTheLink(t *testing.T) {
	b := newTestBench(t, nil)
	second := b.newPlugin(nil)
	if second.link != b.plugin.link {
		t.Fatal("two links to one service: the newer session would end the other's reservations")
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if b.plugin.link.ctx.Err() != nil {
		t.Error("closing one instance stopped the other")
	}
}

func TestPruneForgetsPodsThatAreBoundOrGone(t *testing.T) {
	b := newTestBench(t, nil)
	waiting := b.plugin.link.waiting
	for _, name := range []string{"waits", "bound", "recreated", "gone"} {
		pod := gpuPod(name, 1)
		waiting.enter(pod)
		seen := pod.DeepCopy()
		switch name {
		case "bound":
			seen.Spec.NodeName = "a"
		case "recreated":
			seen.UID = "another"
		case "gone":
			continue
		}
		b.handle.see(t, seen)
	}
	waiting.prune(b.plugin.link.lister)
	if len(waiting.pods) != 1 || waiting.pods["uid-of-waits"] == nil {
		t.Errorf("left: %v", waiting.pods)
	}
}

func TestAServiceThatIsHealthyButFailsDoesNotWakeEverybody(t *testing.T) {
	t.Parallel()
	service := newFakeService(abc...)
	service.filter = func(*pb.FilterRequest) (*pb.FilterResponse, error) {
		return nil, status.Error(codes.DeadlineExceeded, "slow")
	}
	b := connected(t, service, nil)
	for i := range 20 {
		b.preFilter(gpuPod(string(rune('a'+i)), 1), nodesNamed(abc...))
	}
	for range 2 {
		woken := receive(t, b.handle.woken, "the pod that tries the service")
		if len(b.handle.woken) > 1 {
			t.Fatal("all pods were woken")
		}
		b.preFilter(gpuPod(string(woken)[len("uid-of-"):], 1), nodesNamed(abc...))
		if !b.plugin.link.client.breaker.isOpen() {
			t.Fatal("one failure on trial did not open the breaker")
		}
	}
	service.do(func() { service.filter = service.feasible(0) })
	for answered := false; !answered; { // A pod that was woken before the breaker opened may come first.
		woken := receive(t, b.handle.woken, "the pod that tries the service")
		_, _, got := b.preFilter(gpuPod(string(woken)[len("uid-of-"):], 1), nodesNamed(abc...))
		answered = got.IsSuccess()
	}
	others := map[types.UID]bool{}
	for len(others) < 19 {
		others[receive(t, b.handle.woken, "the others")] = true
	}
}

func TestAnotherPodTriesTheServiceIfTheFirstDoesNot(t *testing.T) {
	t.Parallel()
	service := newFakeService(abc...)
	b := connected(t, service, nil)
	for _, name := range []string{"p", "q"} {
		b.plugin.link.waiting.enter(gpuPod(name, 1))
	}
	b.plugin.link.client.breaker.try()
	woken := map[types.UID]bool{}
	for len(woken) < 2 {
		woken[receive(t, b.handle.woken, "another pod")] = true
	}
}
