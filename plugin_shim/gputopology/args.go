package gputopology

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

const (
	unavailableClosed   = "closed"
	unavailableFallback = "fallback"

	endpointScheme = "unix://"
	// socketPathMax is what fits in sockaddr_un.sun_path with its closing zero byte (unix(7)).
	socketPathMax = 107
	// timeoutMax bounds what one call may hold up: all pods of all profiles wait meanwhile.
	timeoutMax = 10 * time.Second
	// vcudaCore is what Tencent's device plugin offers, 100 for a card: github.com/tkestack/gpu-manager, README.md, "Pod
	// template example".
	vcudaCore = "tencent.com/vcuda-core"
	// permitTimeoutMax is the framework's own limit of a wait in Permit.
	permitTimeoutMax = 15 * time.Minute
)

// Args are the plugin's settings in the KubeSchedulerConfiguration.
type Args struct {
	// Endpoint is the service's socket, as unix:///path. Required.
	Endpoint string `json:"endpoint"`
	// Resources are the extended resources that the service decides about. Pods that ask for none of them are left alone.
	Resources []string `json:"resources"`
	// UnitsPerGPU says how many units of a resource are one whole GPU; 1 where nothing is said. The service has the same.
	UnitsPerGPU map[string]int64 `json:"unitsPerGPU"`
	// OnUnavailable says what happens to GPU pods while the service is away: "closed" (they wait) or
	// "fallback" (GPUs are only counted, and the pod is marked as advisory).
	OnUnavailable string `json:"onUnavailable"`
	// FilterTimeout is the deadline of the Filter call.
	FilterTimeout metav1.Duration `json:"filterTimeout"`
	// PlanTimeout is the deadline of the Plan call, which places a whole group.
	PlanTimeout metav1.Duration `json:"planTimeout"`
	// CallTimeout is the deadline of the other calls within a scheduling cycle.
	CallTimeout metav1.Duration `json:"callTimeout"`
	// PermitTimeout is how long reserved members of a group wait for the others.
	PermitTimeout metav1.Duration `json:"permitTimeout"`
}

func defaultArgs() Args {
	return Args{
		Resources:     []string{"nvidia.com/gpu", "amd.com/gpu", vcudaCore},
		UnitsPerGPU:   map[string]int64{vcudaCore: 100},
		OnUnavailable: unavailableClosed,
		FilterTimeout: metav1.Duration{Duration: 250 * time.Millisecond},
		PlanTimeout:   metav1.Duration{Duration: time.Second},
		CallTimeout:   metav1.Duration{Duration: 250 * time.Millisecond},
		PermitTimeout: metav1.Duration{Duration: time.Minute},
	}
}

// decodeArgs reads the settings strictly: an error names every bad field by its path.
func decodeArgs(obj runtime.Object) (Args, error) {
	args := defaultArgs()
	raw, err := rawArgs(obj)
	if err != nil {
		return args, err
	}
	path := field.NewPath("pluginConfig").Key(Name).Child("args")
	errs := args.fill(raw, path)
	if len(errs) == 0 {
		errs = args.validate(path)
	}
	return args, errs.ToAggregate()
}

func rawArgs(obj runtime.Object) (map[string]json.RawMessage, error) {
	if obj == nil {
		return nil, nil
	}
	unknown, ok := obj.(*runtime.Unknown)
	if !ok {
		return nil, fmt.Errorf("args of plugin %s have the type %T; give them as a map in pluginConfig", Name, obj)
	}
	document, err := yaml.YAMLToJSONStrict(unknown.Raw)
	if err != nil {
		return nil, fmt.Errorf("args of plugin %s are neither JSON nor YAML: %s", Name, oneLine(err))
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(document, &raw); err != nil {
		return nil, fmt.Errorf("args of plugin %s are not a map: %w", Name, err)
	}
	return raw, nil
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

func (a *Args) fields() map[string]any {
	return map[string]any{
		"endpoint":      &a.Endpoint,
		"resources":     &a.Resources,
		"unitsPerGPU":   &a.UnitsPerGPU,
		"onUnavailable": &a.OnUnavailable,
		"filterTimeout": &a.FilterTimeout,
		"planTimeout":   &a.PlanTimeout,
		"callTimeout":   &a.CallTimeout,
		"permitTimeout": &a.PermitTimeout,
	}
}

func (a *Args) fill(raw map[string]json.RawMessage, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	fields := a.fields()
	allowed := strings.Join(slices.Sorted(maps.Keys(fields)), ", ")
	for _, key := range slices.Sorted(maps.Keys(raw)) {
		target, known := fields[key]
		if !known {
			errs = append(errs, field.Forbidden(path.Child(key), "unknown key; the allowed keys are "+allowed))
			continue
		}
		if err := json.NewDecoder(bytes.NewReader(raw[key])).Decode(target); err != nil {
			errs = append(errs, field.Invalid(path.Child(key), string(raw[key]), err.Error()))
		}
	}
	return errs
}

func (a *Args) validate(path *field.Path) field.ErrorList {
	errs := validateEndpoint(a.Endpoint, path.Child("endpoint"))
	if len(a.Resources) == 0 {
		errs = append(errs, field.Required(path.Child("resources"), "name at least one extended resource, such as nvidia.com/gpu"))
	}
	for i, resource := range a.Resources {
		if slices.Contains(a.Resources[:i], resource) {
			errs = append(errs, field.Duplicate(path.Child("resources").Index(i), resource))
		}
		if domain, name, found := strings.Cut(resource, "/"); !found || domain == "" || name == "" {
			errs = append(errs, field.Invalid(path.Child("resources").Index(i), resource, "must be an extended resource, such as nvidia.com/gpu"))
		}
	}
	errs = append(errs, a.validateUnits(path.Child("unitsPerGPU"))...)
	if allowed := []string{unavailableClosed, unavailableFallback}; !slices.Contains(allowed, a.OnUnavailable) {
		errs = append(errs, field.NotSupported(path.Child("onUnavailable"), a.OnUnavailable, allowed))
	}
	errs = append(errs, validateTimeout(a.FilterTimeout, timeoutMax, path.Child("filterTimeout"))...)
	errs = append(errs, validateTimeout(a.PlanTimeout, timeoutMax, path.Child("planTimeout"))...)
	errs = append(errs, validateTimeout(a.CallTimeout, timeoutMax, path.Child("callTimeout"))...)
	return append(errs, validateTimeout(a.PermitTimeout, permitTimeoutMax, path.Child("permitTimeout"))...)
}

func (a *Args) validateUnits(path *field.Path) field.ErrorList {
	if a.UnitsPerGPU == nil {
		return field.ErrorList{field.Required(path, "name how many units of a resource are one GPU, such as {"+vcudaCore+": 100}, or leave the key out")}
	}
	var errs field.ErrorList
	builtIn := defaultArgs().UnitsPerGPU
	for _, resource := range slices.Sorted(maps.Keys(a.UnitsPerGPU)) {
		if units := a.UnitsPerGPU[resource]; units < 1 {
			errs = append(errs, field.Invalid(path.Key(resource), units, "must be a whole number from 1: how many units are one GPU"))
		}
		if _, known := builtIn[resource]; !known && !slices.Contains(a.Resources, resource) {
			errs = append(errs, field.Invalid(path.Key(resource), a.UnitsPerGPU[resource], "is not one of resources: add it there"))
		}
	}
	return errs
}

func validateEndpoint(endpoint string, path *field.Path) field.ErrorList {
	socket, isUnix := strings.CutPrefix(endpoint, endpointScheme)
	switch {
	case endpoint == "":
		return field.ErrorList{field.Required(path, "the service's socket, such as unix:///run/pyscheduler/pyscheduler.sock")}
	case !isUnix || !strings.HasPrefix(socket, "/") || strings.HasSuffix(socket, "/"):
		return field.ErrorList{field.Invalid(path, endpoint, "must be unix:// and an absolute path, such as unix:///run/pyscheduler/pyscheduler.sock")}
	case len(socket) > socketPathMax:
		return field.ErrorList{field.TooLong(path, endpoint, socketPathMax+len(endpointScheme))}
	}
	return nil
}

func validateTimeout(timeout metav1.Duration, most time.Duration, path *field.Path) field.ErrorList {
	if timeout.Duration <= 0 || timeout.Duration > most {
		return field.ErrorList{field.Invalid(path, timeout.Duration.String(), fmt.Sprintf("must be more than 0 and at most %s", most))}
	}
	return nil
}
