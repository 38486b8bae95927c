package gputopology

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	pb "pyscheduler.io/plugin-shim/gen/pyscheduler/v1"
)

func TestTableIsExtended(t *testing.T) {
	known := (&table{}).extended(&pb.NodesResponse{Epoch: 3, Names: []string{"a", "b"}})
	for name, test := range map[string]struct {
		answer *pb.NodesResponse
		// want are the names; nil if the answer must be refused.
		want []string
	}{
		"nothing new":             {answer: &pb.NodesResponse{Epoch: 3, First: 2}, want: []string{"a", "b"}},
		"one more":                {answer: &pb.NodesResponse{Epoch: 3, First: 2, Names: []string{"c"}}, want: []string{"a", "b", "c"}},
		"another epoch":           {answer: &pb.NodesResponse{Epoch: 4, Names: []string{"z"}}, want: []string{"z"}},
		"another epoch, empty":    {answer: &pb.NodesResponse{Epoch: 4}, want: []string{}},
		"a gap":                   {answer: &pb.NodesResponse{Epoch: 3, First: 3, Names: []string{"d"}}},
		"another epoch, not at 0": {answer: &pb.NodesResponse{Epoch: 4, First: 2, Names: []string{"z"}}},
	} {
		t.Run(name, func(t *testing.T) {
			next := known.extended(test.answer)
			if (next == nil) != (test.want == nil) {
				t.Fatalf("got %v, want %v", next, test.want)
			}
			if next == nil {
				return
			}
			if next.epoch != test.answer.GetEpoch() || len(next.names) != len(test.want) {
				t.Fatalf("got %+v", next)
			}
			for i, name := range test.want {
				if index, ok := next.lookup(name); !ok || index != uint32(i) || next.names[i] != name {
					t.Errorf("%s is at %d, want %d", name, index, i)
				}
			}
		})
	}
	if len(known.names) != 2 || len(known.index) != 2 {
		t.Error("the earlier table changed")
	}
}

func TestBitmap(t *testing.T) {
	b := newBitmap(9)
	b.set(0, true)
	b.set(8, true)
	b.set(3, true)
	b.set(3, false)
	for i := range uint32(64) {
		if want := i == 0 || i == 8; b.has(i) != want {
			t.Errorf("bit %d is %v", i, b.has(i))
		}
	}
	if b[0] != 1 || b[1] != 1 {
		t.Errorf("the bytes are %v: node i is bit i%%8 of byte i/8", b)
	}
}

type nodeListerFunc func(ctx context.Context) (*pb.NodesResponse, error)

func (f nodeListerFunc) Nodes(ctx context.Context, _ *pb.NodesRequest, _ ...grpc.CallOption) (*pb.NodesResponse, error) {
	return f(ctx)
}

func TestFetchDoesNotWaitLongerThanItsContextForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck, free := context.WithCancel(context.Background())
		tables := newTables(nodeListerFunc(func(ctx context.Context) (*pb.NodesResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}), "unix:///x", func(int64) {})
		go func() { _, _ = tables.fetch(stuck) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		var away *unavailableError
		if _, err := tables.fetch(ctx); !errors.As(err, &away) {
			t.Errorf("got %v", err)
		}
		free()
	})
}

func TestFetchRefusesEpochZero(t *testing.T) {
	tables := newTables(nodeListerFunc(func(context.Context) (*pb.NodesResponse, error) {
		return &pb.NodesResponse{Names: []string{"a"}}, nil
	}), "unix:///x", func(int64) {})
	var nonsense *nonsenseError
	if _, err := tables.fetch(t.Context()); !errors.As(err, &nonsense) {
		t.Errorf("got %v", err)
	}
	if tables.current().epoch != 0 || len(tables.current().names) != 0 {
		t.Error("the answer was kept")
	}
}
