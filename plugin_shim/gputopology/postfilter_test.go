package gputopology

import (
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	fwk "k8s.io/kube-scheduler/framework"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

func TestWideCycle(t *testing.T) {
	service := newFakeService(abc...)
	service.filter = service.feasible(0, 1)
	var asked *pb.ScoreRequest
	service.score = func(request *pb.ScoreRequest) (*pb.ScoreResponse, error) {
		asked = request
		return &pb.ScoreResponse{Verdict: &pb.Verdict{Code: pb.Verdict_CODE_OK}, Ranked: []*pb.Candidate{{Node: 1, Score: 100}}}, nil
	}
	b := connected(t, service, nil)
	pod := gpuPod("p", 1)

	state, _, _ := b.preFilter(pod, nodesNamed(abc...))
	_, got := b.plugin.PostFilter(b.ctx, state, pod, nil)
	wantStatus(t, got, fwk.UnschedulableAndUnresolvable, reasonWiden)
	if woken := receive(t, b.handle.woken, "the second cycle"); woken != pod.UID {
		t.Errorf("woke %s", woken)
	}

	state, result, got := b.preFilter(pod, nodesNamed(abc...))
	wantStatus(t, got, fwk.Success, "")
	if !result.AllNodes() {
		t.Errorf("the wide cycle is restricted to %v", result.NodeNames)
	}
	wantStatus(t, b.plugin.Filter(b.ctx, state, pod, nodeNamed("c")), fwk.Unschedulable, reasonNotFree)
	wantStatus(t, b.plugin.PreScore(b.ctx, state, pod, nodesNamed("a", "b", "unknown")), fwk.Success, "")
	if !slices.Equal(asked.GetNodes().GetBitmap(), bitmapOf(3, 0, 1)) || asked.GetNodes().GetEpoch() != 7 {
		t.Errorf("asked for scores of %v", asked.GetNodes())
	}
	for name, want := range map[string]int64{"b": 100, "a": 0} {
		if score, _ := b.plugin.Score(b.ctx, state, pod, nodeNamed(name)); score != want {
			t.Errorf("score of %s is %d, want %d", name, score, want)
		}
	}
	// No node has pods that could go; what was found is told apart from what the narrow cycle found.
	b.handle.nodes = nodesNamed(abc...)
	found := statuses{
		"a": fwk.NewStatus(fwk.Unschedulable, "Insufficient cpu"),
		"b": fwk.NewStatus(fwk.Unschedulable, "Insufficient cpu"),
		"c": fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node(s) were unschedulable"),
	}
	_, got = b.plugin.PostFilter(b.ctx, state, pod, found)
	wantStatus(t, got, fwk.Unschedulable, "")
	want := "Warning FailedScheduling 0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu."
	if told := receive(t, b.told.Events, "an Event"); told != want {
		t.Errorf("told %q, want %q", told, want)
	}
	if len(b.handle.woken) > 0 {
		t.Error("a wide cycle that failed woke the pod again")
	}
}

func TestWideCyclesEndWithTheBinding(t *testing.T) {
	service := newFakeService(abc...)
	service.filter, service.reserve = service.feasible(0), reserving(`{"main":["GPU-1"]}`)
	b := connected(t, service, nil)
	recordBinding(b.api)
	pod := gpuPod("p", 1)
	state, _, _ := b.preFilter(pod, nodesNamed(abc...))
	b.plugin.PostFilter(b.ctx, state, pod, nil)
	state, _, _ = b.preFilter(pod, nodesNamed(abc...))
	wantStatus(t, b.plugin.Reserve(b.ctx, state, pod, "a"), fwk.Success, "")
	wantStatus(t, b.plugin.Bind(b.ctx, state, pod, "a"), fwk.Success, "")
	if b.plugin.link.waiting.isWide(pod.UID) {
		t.Error("the bound pod is still remembered")
	}
}

func TestScoreVerdicts(t *testing.T) {
	for name, test := range map[string]struct {
		answer *pb.ScoreResponse
		err    error
		want   fwk.Code
	}{
		"none is feasible any more": {answer: &pb.ScoreResponse{Verdict: &pb.Verdict{Code: pb.Verdict_CODE_UNSCHEDULABLE, Reason: "taken"}}, want: fwk.Success},
		"another table":             {answer: &pb.ScoreResponse{Verdict: &pb.Verdict{Code: pb.Verdict_CODE_RETRY}}, want: fwk.Error},
		"no verdict":                {answer: &pb.ScoreResponse{}, want: fwk.Error},
		"no answer":                 {err: status.Error(codes.Unavailable, "away"), want: fwk.Error},
	} {
		t.Run(name, func(t *testing.T) {
			service := newFakeService(abc...)
			service.filter = service.feasible(0, 1)
			service.score = func(*pb.ScoreRequest) (*pb.ScoreResponse, error) { return test.answer, test.err }
			b := connected(t, service, nil)
			pod := gpuPod("p", 1)
			state, _, _ := b.preFilter(pod, nodesNamed(abc...))
			b.plugin.PostFilter(b.ctx, state, pod, nil)
			state, _, _ = b.preFilter(pod, nodesNamed(abc...))
			if got := b.plugin.PreScore(b.ctx, state, pod, nodesNamed("a", "b")); got.Code() != test.want {
				t.Errorf("got %v, want %s", got, test.want)
			}
		})
	}
}
