package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"pyscheduler.io/plugin-shim/gputopology"
)

func main() {
	os.Exit(cli.Run(app.NewSchedulerCommand(app.WithPlugin(gputopology.Name, gputopology.New))))
}
