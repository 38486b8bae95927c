package gputopology

import (
	"testing"

	"k8s.io/component-base/metrics/legacyregistry"
)

func TestCallsAreCountedInTheSchedulersMetrics(t *testing.T) {
	service := newFakeService(abc...)
	service.filter = service.feasible(0)
	b := connected(t, service, nil)
	b.preFilter(gpuPod("p", 1), nodesNamed(abc...))
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]bool{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				counted[family.GetName()+" "+label.GetValue()] = true
			}
		}
	}
	for _, want := range []string{"pyscheduler_shim_rpc_total Filter", "pyscheduler_shim_rpc_total OK", "pyscheduler_shim_rpc_duration_seconds Filter",
		"pyscheduler_shim_breaker_open " + b.plugin.args.Endpoint} {
		if !counted[want] {
			t.Errorf("%q is not in the metrics", want)
		}
	}
}
