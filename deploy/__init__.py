"""What it takes to run pyscheduler: manifests, and a control plane on one machine."""
