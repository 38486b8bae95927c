package gputopology

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

// PreScore asks the service to rank the nodes that passed, in wide cycles. In
// narrow ones the scores came with the candidates.
func (p *Plugin) PreScore(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	c := readCycle(state)
	if c == nil || c.countsNothing() {
		return fwk.NewStatus(fwk.Skip)
	}
	if c.kind != cycleWide {
		return nil
	}
	answer, err := p.scoreCall(ctx, c, nodes)
	if err != nil {
		return p.failed(pod, err)
	}
	switch code := answer.GetVerdict().GetCode(); code {
	case pb.Verdict_CODE_OK, pb.Verdict_CODE_UNSCHEDULABLE, pb.Verdict_CODE_UNRESOLVABLE:
		// A refusal here would be turned into an Error: Reserve refuses properly.
		c.scores = scoresOf(answer.GetRanked())
		return nil
	case pb.Verdict_CODE_RETRY:
		return p.failed(pod, errors.New(orDefault(answer.GetVerdict().GetReason(), reasonRetry)))
	default:
		return p.failed(pod, p.nonsense("Score", fmt.Sprintf("the verdict code %d", code)))
	}
}

func (p *Plugin) scoreCall(ctx context.Context, c *cycle, nodes []fwk.NodeInfo) (*pb.ScoreResponse, error) {
	survivors := newBitmap(len(c.verdict.table.names))
	for _, node := range nodes {
		if i, known := c.verdict.table.lookup(node.Node().Name); known {
			survivors.set(i, true)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, p.args.CallTimeout.Duration)
	defer cancel()
	return p.link.client.Score(ctx, &pb.ScoreRequest{
		Attempt: c.attempt,
		Pod:     c.pod,
		Nodes:   &pb.NodeSet{Epoch: c.verdict.table.epoch, Bitmap: survivors},
	})
}

func scoresOf(candidates []*pb.Candidate) map[uint32]int64 {
	scores := make(map[uint32]int64, len(candidates))
	for _, candidate := range candidates {
		scores[candidate.GetNode()] = min(int64(candidate.GetScore()), fwk.MaxScore)
	}
	return scores
}
