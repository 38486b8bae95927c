package gputopology

import (
	"context"
	"maps"
	"sync/atomic"

	"google.golang.org/grpc"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

// table maps the service's node indices to names and back. It never changes; a
// longer one of the same epoch keeps every index.
type table struct {
	// epoch is 0 for the empty table that the shim starts with.
	epoch uint64
	names []string
	index map[string]uint32
}

func (t *table) lookup(name string) (uint32, bool) {
	i, ok := t.index[name]
	return i, ok
}

func (t *table) name(i uint32) (string, bool) {
	if int(i) >= len(t.names) {
		return "", false
	}
	return t.names[i], true
}

// suffices tells whether the answer can be read by this table. A refusal by a table that has grown since cannot: the
// nodes that joined were not judged, and one of them may fit.
func (t *table) suffices(answer judged) bool {
	refused := answer.GetVerdict().GetCode() != pb.Verdict_CODE_OK
	return answer.GetEpoch() == t.epoch && !(refused && int(answer.GetTableSize()) > len(t.names))
}

// extended returns the table with the names of the answer, or nil if the answer does not continue it.
func (t *table) extended(answer *pb.NodesResponse) *table {
	if answer.GetEpoch() == 0 {
		return nil
	}
	next := &table{epoch: answer.GetEpoch(), index: map[string]uint32{}}
	if answer.GetEpoch() == t.epoch {
		if len(answer.GetNames()) == 0 {
			return t
		}
		next.names, next.index = t.names, maps.Clone(t.index)
	}
	if int(answer.GetFirst()) != len(next.names) {
		return nil
	}
	for _, name := range answer.GetNames() {
		next.index[name] = uint32(len(next.names))
		next.names = append(next.names, name)
	}
	return next
}

// bitmap is a set of node indices in the form of NodeSet.bitmap. Bits beyond its end are 0.
type bitmap []byte

func newBitmap(size int) bitmap { return make(bitmap, (size+7)/8) }

func (b bitmap) has(i uint32) bool {
	byteIndex := int(i / 8)
	return byteIndex < len(b) && b[byteIndex]&(1<<(i%8)) != 0
}

// set needs i to be within the bitmap.
func (b bitmap) set(i uint32, on bool) {
	if on {
		b[i/8] |= 1 << (i % 8)
	} else {
		b[i/8] &^= 1 << (i % 8)
	}
}

type nodeLister interface {
	Nodes(ctx context.Context, in *pb.NodesRequest, opts ...grpc.CallOption) (*pb.NodesResponse, error)
}

// tables keeps the newest node table.
type tables struct {
	service  nodeLister
	endpoint string
	newest   atomic.Pointer[table]
	// outrank is told the newest session that the service knows of.
	outrank func(session int64)
	// turn holds one token: a fetch at a time, and a waiting one gives up with its context.
	turn chan struct{}
}

func newTables(service nodeLister, endpoint string, outrank func(session int64)) *tables {
	t := &tables{service: service, endpoint: endpoint, outrank: outrank, turn: make(chan struct{}, 1)}
	t.newest.Store(&table{})
	return t
}

// current returns the newest table; it is the empty one until the first fetch.
func (t *tables) current() *table { return t.newest.Load() }

// fetch asks the service for what is missing and returns the newest table.
func (t *tables) fetch(ctx context.Context) (*table, error) {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return nil, &unavailableError{endpoint: t.endpoint, cause: ctx.Err()}
	}
	have := t.current()
	answer, err := t.service.Nodes(ctx, &pb.NodesRequest{Epoch: have.epoch, Known: uint32(len(have.names))})
	if err != nil {
		return nil, err
	}
	next := have.extended(answer)
	if next == nil {
		return nil, &nonsenseError{endpoint: t.endpoint, method: "Nodes", what: "names that do not continue the table"}
	}
	t.outrank(answer.GetNewestSession())
	t.newest.Store(next)
	return next, nil
}
