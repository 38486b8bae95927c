package gputopology

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// versionSkew says in one sentence which side is older and what to do; empty if both are of one version.
func versionSkew(service string) string {
	if service == Version {
		return ""
	}
	served, err := version.ParseGeneric(service)
	ours := version.MustParseGeneric(Version)
	switch {
	case err == nil && served.LessThan(ours):
		return fmt.Sprintf("The GPU topology service has version %s, older than this plugin's %s: upgrade the service", service, Version)
	case err == nil && ours.LessThan(served):
		return fmt.Sprintf("This plugin has version %s, older than the GPU topology service's %s: upgrade the scheduler", Version, service)
	default:
		return fmt.Sprintf("The GPU topology service has version %q, this plugin %s: run the same version of both", service, Version)
	}
}
