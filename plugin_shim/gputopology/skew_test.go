package gputopology

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	fwk "k8s.io/kube-scheduler/framework"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

func TestTheOlderSideIsNamed(t *testing.T) {
	for service, want := range map[string]string{
		Version:      "",
		"0.0.9":      "The GPU topology service has version 0.0.9, older than this plugin's " + Version + ": upgrade the service",
		"12.0.0":     "This plugin has version " + Version + ", older than the GPU topology service's 12.0.0: upgrade the scheduler",
		"0.1.0.dev1": `The GPU topology service has version "0.1.0.dev1", this plugin ` + Version + ": run the same version of both",
		"":           `The GPU topology service has version "", this plugin ` + Version + ": run the same version of both",
	} {
		if got := versionSkew(service); got != want {
			t.Errorf("%q: %q, want %q", service, got, want)
		}
	}
}

func TestACallThatTheServiceDoesNotKnowTellsWhatToUpgrade(t *testing.T) {
	service := newFakeService(abc...)
	service.filter = func(*pb.FilterRequest) (*pb.FilterResponse, error) {
		return nil, status.Error(codes.Unimplemented, "unknown method")
	}
	b := connected(t, service, nil)
	_, _, got := b.preFilter(gpuPod("p", 1), nodesNamed(abc...))
	want := "the GPU topology service on SOCKET does not know the call Filter, so it is older than this plugin: upgrade the service to version " + Version
	wantStatus(t, got, fwk.Error, strings.ReplaceAll(want, "SOCKET", b.plugin.args.Endpoint))
}
