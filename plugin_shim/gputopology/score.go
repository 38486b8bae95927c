package gputopology

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// Score reads the service's score of the node, 0 to 100.
func (p *Plugin) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	c := readCycle(state)
	if c == nil {
		return 0, nil
	}
	i, known := c.verdict.table.lookup(node.Node().Name)
	if !known {
		return 0, nil
	}
	return c.scores[i], nil
}

// ScoreExtensions is nil: the scores are on the framework's scale already.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return nil }
