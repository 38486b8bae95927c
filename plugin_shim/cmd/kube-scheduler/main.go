// kube-scheduler with the plugin GPUTopology compiled in.
package main

import (
	"io"
	"os"

	"google.golang.org/grpc/grpclog"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // JSON log format
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of the API client
	_ "k8s.io/component-base/metrics/prometheus/version"  // metric kubernetes_build_info
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"pyscheduler.io/plugin-shim/gputopology"
)

func main() {
	// gRPC warns of every attempt to connect, each second while the service is away; the plugin says once that it is.
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, os.Stderr))
	os.Exit(cli.Run(app.NewSchedulerCommand(app.WithPlugin(gputopology.Name, gputopology.New))))
}
