package gputopology

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

func TestArgsAreDecodedStrictly(t *testing.T) {
	for name, test := range map[string]struct {
		document string
		// want lists what the error must contain; empty for no error.
		want []string
	}{
		"only the endpoint":      {document: `endpoint: unix:///run/x.sock`},
		"JSON":                   {document: `{"endpoint": "unix:///run/x.sock", "filterTimeout": "1s"}`},
		"nothing":                {document: ``, want: []string{"pluginConfig[GPUTopology].args.endpoint", "unix:///run/pyscheduler/pyscheduler.sock"}},
		"unknown key":            {document: "endpoint: unix:///x\nendpont: unix:///y", want: []string{"args.endpont", "allowed keys are callTimeout, endpoint, filterTimeout, onUnavailable, permitTimeout, planTimeout, resources, unitsPerGPU"}},
		"key in another case":    {document: "Endpoint: unix:///x", want: []string{"args.Endpoint"}},
		"key twice":              {document: "endpoint: unix:///x\nendpoint: unix:///y", want: []string{`"endpoint" already set`}},
		"TCP":                    {document: "endpoint: localhost:80", want: []string{"args.endpoint", "localhost:80"}},
		"relative path":          {document: "endpoint: unix://x.sock", want: []string{"args.endpoint", "absolute path"}},
		"path of a folder":       {document: "endpoint: unix:///run/", want: []string{"args.endpoint"}},
		"path too long":          {document: "endpoint: unix:///" + strings.Repeat("x", 107), want: []string{"args.endpoint", "Too long"}},
		"bad mode":               {document: "endpoint: unix:///x\nonUnavailable: open", want: []string{"args.onUnavailable", `"closed"`, `"fallback"`}},
		"no resources":           {document: "endpoint: unix:///x\nresources: []", want: []string{"args.resources"}},
		"resource without slash": {document: "endpoint: unix:///x\nresources: [nvidia.com/gpu, cpu]", want: []string{"args.resources[1]", "cpu"}},
		"resource twice":         {document: "endpoint: unix:///x\nresources: [amd.com/gpu, amd.com/gpu]", want: []string{"args.resources[1]", "Duplicate"}},
		"units":                  {document: "endpoint: unix:///x\nresources: [example.com/core]\nunitsPerGPU: {example.com/core: 10}"},
		"no units":               {document: "endpoint: unix:///x\nunitsPerGPU: {tencent.com/vcuda-core: 0}", want: []string{"args.unitsPerGPU[tencent.com/vcuda-core]", "0", "whole number from 1"}},
		"units of what is none":  {document: "endpoint: unix:///x\nunitsPerGPU: {example.com/core: 10}", want: []string{"args.unitsPerGPU[example.com/core]", "not one of resources: add it there"}},
		"half a unit":            {document: "endpoint: unix:///x\nunitsPerGPU: {tencent.com/vcuda-core: 0.5}", want: []string{"args.unitsPerGPU", "0.5"}},
		"units left empty":       {document: "endpoint: unix:///x\nunitsPerGPU:", want: []string{"args.unitsPerGPU", "or leave the key out"}},
		"no time":                {document: "endpoint: unix:///x\nfilterTimeout: 0s", want: []string{"args.filterTimeout"}},
		"longer than a wait can": {document: "endpoint: unix:///x\npermitTimeout: 16m", want: []string{"args.permitTimeout", "at most 15m"}},
		"plan without an end":    {document: "endpoint: unix:///x\nplanTimeout: 1m", want: []string{"args.planTimeout", "at most 10s"}},
		"number for time":        {document: "endpoint: unix:///x\ncallTimeout: 250", want: []string{"args.callTimeout", "250"}},
		"every error at once":    {document: "endpoint: x\ncallTimeout: -1s", want: []string{"args.endpoint", "args.callTimeout"}},
		"a list":                 {document: "[1]", want: []string{"not a map"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decodeArgs(&runtime.Unknown{Raw: []byte(test.document)})
			if (err != nil) != (len(test.want) > 0) {
				t.Fatalf("error is %v, want one: %v", err, len(test.want) > 0)
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not contain %q", err, part)
				}
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("%q is more than one line", err)
			}
		})
	}
}

func TestArgsDefaults(t *testing.T) {
	args, err := decodeArgs(&runtime.Unknown{Raw: []byte("endpoint: unix:///x\ncallTimeout: 1s")})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(args.Resources, []string{"nvidia.com/gpu", "amd.com/gpu", "tencent.com/vcuda-core"}) ||
		!maps.Equal(args.UnitsPerGPU, map[string]int64{"tencent.com/vcuda-core": 100}) || args.OnUnavailable != "closed" ||
		args.FilterTimeout.Duration != 250*time.Millisecond || args.CallTimeout.Duration != time.Second ||
		args.PlanTimeout.Duration != time.Second || args.PermitTimeout.Duration != time.Minute {
		t.Errorf("got %+v", args)
	}
}

func TestUnitsThatAreSetStandBesideThoseThatAreKnown(t *testing.T) {
	args, err := decodeArgs(&runtime.Unknown{Raw: []byte("endpoint: unix:///x\nresources: [tencent.com/vcuda-core, example.com/core]\nunitsPerGPU: {example.com/core: 10}")})
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(args.UnitsPerGPU, map[string]int64{"tencent.com/vcuda-core": 100, "example.com/core": 10}) {
		t.Errorf("got %v", args.UnitsPerGPU)
	}
}

func TestVersionIsThatOfThePythonPackage(t *testing.T) {
	project, err := os.ReadFile("../../pyproject.toml")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^version = "(.*)"$`).FindSubmatch(project)
	if version == nil || string(version[1]) != Version {
		t.Errorf("pyproject.toml has the version %q, the plugin %q: change both", version, Version)
	}
}
