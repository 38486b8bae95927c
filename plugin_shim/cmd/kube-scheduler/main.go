// kube-scheduler with the plugin GPUTopology compiled in.
package main

import (
	"io"
	"os"

	"google.golang.org/grpc/grpclog"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/featuregate"
	_ "k8s.io/component-base/logs/json/register"          // JSON log format
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of the API client
	_ "k8s.io/component-base/metrics/prometheus/version"  // metric kubernetes_build_info
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/pkg/features"

	"pyscheduler.io/plugin-shim/gputopology"
)

// defaults differ from those of Kubernetes 1.37; --feature-gates wins. Members of a group wait in Permit, and with this
// feature each of them costs one more API write then: as many as the Bindings, before the first of these.
var defaults = map[featuregate.Feature]bool{features.NominatedNodeNameForExpectation: false}

func main() {
	// gRPC warns of every attempt to connect, each second while the service is away; the plugin says once that it is.
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, os.Stderr))
	for feature, enabled := range defaults {
		if err := utilfeature.DefaultMutableFeatureGate.OverrideDefault(feature, enabled); err != nil {
			panic(err) // The feature is gone: so must be its line above.
		}
	}
	os.Exit(cli.Run(app.NewSchedulerCommand(app.WithPlugin(gputopology.Name, gputopology.New))))
}
