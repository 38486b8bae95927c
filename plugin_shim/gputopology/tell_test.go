package gputopology

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	fwk "k8s.io/kube-scheduler/framework"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

func TestAReasonThatChangesIsToldAndARepeatedOneIsNot(t *testing.T) {
	service := newFakeService(abc...)
	var answer *pb.FilterResponse
	var failure error
	service.filter = func(*pb.FilterRequest) (*pb.FilterResponse, error) { return answer, failure }
	b := connected(t, service, nil)
	pod := gpuPod("p", 4)
	refuse := func(reason string) {
		verdict := &pb.Verdict{Code: pb.Verdict_CODE_UNSCHEDULABLE, Reason: reason}
		answer, failure = &pb.FilterResponse{Epoch: service.epoch, TableSize: uint32(len(abc)), Verdict: verdict}, nil
		_, _, got := b.preFilter(pod, nodesNamed(abc...))
		wantStatus(t, got, fwk.Unschedulable, reason)
	}

	refuse("two are lacking") // The framework tells the first.
	refuse("two are lacking")
	refuse("one is lacking")
	refuse("one is lacking")
	answer, failure = nil, status.Error(codes.Internal, "bug")
	_, _, got := b.preFilter(pod, nodesNamed(abc...))
	if got.Code() != fwk.Error {
		t.Fatalf("got %v", got)
	}
	refuse("one is lacking")

	for _, want := range []string{"one is lacking", got.Message(), "one is lacking"} {
		if told := receive(t, b.told.Events, "an Event"); told != "Warning FailedScheduling "+want {
			t.Errorf("told %q, want %q", told, want)
		}
	}
	if len(b.told.Events) > 0 {
		t.Errorf("told also %q", <-b.told.Events)
	}
}
