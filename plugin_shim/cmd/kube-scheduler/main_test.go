package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"pyscheduler.io/plugin-shim/gputopology"
)

const kubeconfig = `{"apiVersion": "v1", "kind": "Config", "current-context": "c",
"contexts": [{"name": "c", "context": {"cluster": "c"}}], "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}]}`

// setUp builds the scheduler from the recommended configuration, as kube-scheduler does at its start.
func setUp(t *testing.T, change func(document string) string) (*scheduler.Scheduler, error) {
	t.Helper()
	recommended, err := os.ReadFile("../../testdata/scheduler.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	document := strings.NewReplacer("KUBECONFIG", write("kubeconfig", kubeconfig), "SOCKET", "/run/nowhere.sock").Replace(string(recommended))
	opts := options.NewOptions()
	opts.SecureServing.BindPort = 0 // No port: tests run side by side.
	opts.ConfigFile = write("scheduler.yaml", change(document))
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	_, sched, err := app.Setup(ctx, opts, app.WithPlugin(gputopology.Name, gputopology.New))
	return sched, err
}

func TestRecommendedConfiguration(t *testing.T) {
	sched, err := setUp(t, func(document string) string { return document })
	if err != nil {
		t.Fatal(err)
	}
	if len(sched.Profiles) != 1 {
		t.Fatalf("%d profiles: beside the cluster's own scheduler there is gpu-topology only", len(sched.Profiles))
	}
	plugins := sched.Profiles["gpu-topology"].ListPlugins()
	for point, set := range map[string]config.PluginSet{"filter": plugins.Filter, "postFilter": plugins.PostFilter, "bind": plugins.Bind} {
		if first := set.Enabled[0].Name; first != gputopology.Name {
			t.Errorf("%s comes first at %s", first, point)
		}
	}
	for point, set := range map[string]config.PluginSet{"preFilter": plugins.PreFilter, "preScore": plugins.PreScore, "reserve": plugins.Reserve} {
		if last := set.Enabled[len(set.Enabled)-1].Name; last != gputopology.Name {
			t.Errorf("%s comes last at %s: a pod that others refuse costs a call", last, point)
		}
	}
	// It does itself what the in-tree preemption does, and holds pods back while their victims are evicted.
	if !enabled(plugins.PreEnqueue, gputopology.Name) {
		t.Errorf("%s is not asked at preEnqueue", gputopology.Name)
	}
	for point, set := range map[string]config.PluginSet{"preEnqueue": plugins.PreEnqueue, "postFilter": plugins.PostFilter} {
		if enabled(set, names.DefaultPreemption) {
			t.Errorf("%s is enabled at %s", names.DefaultPreemption, point)
		}
	}
	for _, plugin := range plugins.Score.Enabled {
		if plugin.Name == gputopology.Name && plugin.Weight != 10000 {
			t.Errorf("weight %d", plugin.Weight)
		}
	}
}

func enabled(set config.PluginSet, name string) bool {
	return slices.ContainsFunc(set.Enabled, func(plugin config.Plugin) bool { return plugin.Name == name })
}

func TestReplacingTheDefaultSchedulerLeavesItsProfileAlone(t *testing.T) {
	sched, err := setUp(t, func(document string) string {
		return strings.Replace(document, "profiles:\n", "profiles:\n- schedulerName: default-scheduler\n", 1)
	})
	if err != nil {
		t.Fatal(err)
	}
	plugins := sched.Profiles["default-scheduler"].ListPlugins()
	for _, set := range []config.PluginSet{plugins.PreFilter, plugins.Filter, plugins.Score, plugins.Bind} {
		if enabled(set, gputopology.Name) {
			t.Error("the plugin is in the default profile")
		}
	}
	if !enabled(plugins.PostFilter, names.DefaultPreemption) {
		t.Error("the default profile has lost its preemption")
	}
}

func TestTheStartFailsForAnUnknownKey(t *testing.T) {
	_, err := setUp(t, func(document string) string { return strings.Replace(document, "args: {", "args: {deadline: 5ms, ", 1) })
	if err == nil || !strings.Contains(err.Error(), "pluginConfig[GPUTopology].args.deadline") || !strings.Contains(err.Error(), "callTimeout, endpoint") {
		t.Errorf("got %v", err)
	}
}
