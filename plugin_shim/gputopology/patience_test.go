package gputopology

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2/ktesting"
)

// mortalAPI is an API server that dies and comes back at the same address. It serves watches that begin with all objects,
// of which there is one at a time: a pod.
type mortalAPI struct {
	t       *testing.T
	address string
	server  *http.Server
	pod     atomic.Pointer[v1.Pod]
	ready   atomic.Bool
	// unready carries each time that it said it is not ready; wrong each request that it did not expect, or not yet.
	unready chan struct{}
	wrong   chan string
}

func newMortalAPI(t *testing.T) *mortalAPI {
	t.Helper()
	a := &mortalAPI{t: t, address: "127.0.0.1:0", unready: make(chan struct{}, 1024), wrong: make(chan string, 1024)}
	a.live()
	t.Cleanup(func() { a.die() })
	return a
}

func (a *mortalAPI) live() {
	a.t.Helper()
	listener, err := net.Listen("tcp", a.address)
	if err != nil {
		a.t.Fatal(err)
	}
	a.address = listener.Addr().String()
	a.server = &http.Server{Handler: a}
	go func(server *http.Server) { _ = server.Serve(listener) }(a.server)
}

// die breaks all connections; new ones are refused.
func (a *mortalAPI) die() {
	a.ready.Store(false)
	_ = a.server.Close()
}

func (a *mortalAPI) clientset() kubernetes.Interface {
	a.t.Helper()
	clientset, err := kubernetes.NewForConfig(&rest.Config{Host: "http://" + a.address, QPS: -1})
	if err != nil {
		a.t.Fatal(err)
	}
	return clientset
}

func (a *mortalAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ready, readsAll := a.ready.Load(), r.URL.Query().Get("sendInitialEvents") == "true"
	switch {
	case r.URL.Path == "/readyz":
		if !ready {
			a.unready <- struct{}{}
			w.WriteHeader(http.StatusInternalServerError)
		}
	case !ready && !readsAll: // It was about to be sent when another one found out that the API server is away.
		w.WriteHeader(http.StatusForbidden)
	case !ready || !readsAll:
		a.wrong <- fmt.Sprintf("%s (ready: %t)", r.URL, ready)
		w.WriteHeader(http.StatusForbidden)
	default:
		w.Header().Set("Content-Type", "application/json")
		kind := "Node"
		if strings.HasSuffix(r.URL.Path, "/pods") {
			kind = "Pod"
			send(w, "ADDED", a.pod.Load())
		}
		send(w, "BOOKMARK", bookmark(kind, map[string]string{metav1.InitialEventsAnnotationKey: "true"}))
		send(w, "BOOKMARK", bookmark(kind, nil)) // Client-go takes a watch that shows nothing for a failure.
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

func bookmark(kind string, annotations map[string]string) any {
	return metav1.PartialObjectMetadata{TypeMeta: typeOf(kind), ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7", Annotations: annotations}}
}

func typeOf(kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: "v1", Kind: kind} }

func send(w http.ResponseWriter, kind string, object any) {
	_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": object})
}

func (a *mortalAPI) hold(name string) {
	pod := plainPod(name)
	pod.TypeMeta, pod.ResourceVersion = typeOf("Pod"), "5"
	a.pod.Store(pod)
}

func patientOf(clientset kubernetes.Interface) *patientTransport {
	return clientset.CoreV1().RESTClient().(*rest.RESTClient).Client.Transport.(*patientTransport)
}

func TestInformersGoOnAsSoonAsTheAPIServerIsReady(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	api := newMortalAPI(t)
	api.hold("pod-0")
	api.ready.Store(true)
	clientset := api.clientset()
	factory := informers.NewSharedInformerFactory(clientset, 0)
	bePatient(ctx, &fakeHandle{clientset: clientset, factory: factory})
	added, deleted := make(chan string, 1024), make(chan string, 1024)
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { added <- object.(*v1.Pod).Name },
		DeleteFunc: func(object any) {
			key, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
			deleted <- key
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()
	if name := receive(t, added, "the first pod"); name != "pod-0" {
		t.Fatalf("got %s", name)
	}

	// Client-go's own waits after as many deaths are 50 s at least.
	transport := patientOf(clientset)
	begun := time.Now()
	for death := range 6 {
		api.die()
		eventually(t, "that the API server is known to be away", func() bool { return transport.away() != nil })
		api.hold(fmt.Sprintf("pod-%d", death+1))
		api.live()
		receive(t, api.unready, "the question whether it is ready")
		receive(t, api.unready, "the same again")
		api.ready.Store(true)
		if name := receive(t, added, "the new pod"); name != fmt.Sprintf("pod-%d", death+1) {
			t.Errorf("got %s", name)
		}
		if key := receive(t, deleted, "the end of the old pod"); key != fmt.Sprintf("team/pod-%d", death) {
			t.Errorf("%s is gone", key)
		}
	}
	if took := time.Since(begun); took > patience {
		t.Errorf("six deaths took %s", took)
	}
	select {
	case request := <-api.wrong:
		t.Errorf("got %s", request)
	default:
	}
}

func TestOnlyInformersWaitForTheAPIServer(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	api := newMortalAPI(t)
	clientset := api.clientset()
	api.die()
	factory := informers.NewSharedInformerFactory(clientset, 0)
	bePatient(ctx, &fakeHandle{clientset: clientset, factory: factory})
	waiting, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := clientset.CoreV1().Nodes().List(waiting, metav1.ListOptions{ResourceVersion: "0"})
		ended <- err
	}()
	transport := patientOf(clientset)
	eventually(t, "that the API server is known to be away", func() bool { return transport.away() != nil })

	if _, err := clientset.CoreV1().Pods("team").Get(ctx, "pod", metav1.GetOptions{}); !utilnet.IsConnectionRefused(err) {
		t.Errorf("a read of one pod ended with %v", err)
	}
	if err := clientset.CoreV1().Pods("team").Bind(ctx, bindingOf(plainPod("pod"), "node-1", nil), metav1.CreateOptions{}); !utilnet.IsConnectionRefused(err) {
		t.Errorf("a Binding ended with %v", err)
	}
	if _, err := clientset.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{ResourceVersion: "5"}); !errors.Is(err, errAway) {
		t.Errorf("a watch that goes on ended with %v", err)
	}
	cancel()
	if err := receive(t, ended, "the end of the list"); !errors.Is(err, context.Canceled) {
		t.Errorf("a list whose context ended says %v", err)
	}
}

func TestProfilesShareOnePatientClient(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	api := newMortalAPI(t)
	clientset := api.clientset()
	h := &fakeHandle{clientset: clientset, factory: informers.NewSharedInformerFactory(clientset, 0)}
	bePatient(ctx, h)
	first := patientOf(clientset)
	bePatient(ctx, h)
	if patientOf(clientset) != first {
		t.Error("the second profile has wrapped the client again")
	}
}

// script answers each request with what comes next.
type script []func() (*http.Response, error)

func (s *script) RoundTrip(*http.Request) (*http.Response, error) {
	next := (*s)[0]
	*s = (*s)[1:]
	return next()
}

func refused() (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}

func broken() (*http.Response, error) {
	return nil, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
}

func fine() (*http.Response, error) { return &http.Response{StatusCode: http.StatusOK}, nil }

func listNodes(t *testing.T) *http.Request {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://server/api/v1/nodes?resourceVersion=0", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return request
}

func TestAnAPIServerThatNeverSaysItIsReadyIsAskedAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		probes, begun := 0, time.Now()
		transport := &patientTransport{ctx: t.Context(), next: &script{refused, fine}, ready: func(context.Context) error {
			if probes++; probes%20 == 0 && time.Since(begun) < time.Minute {
				_, err := refused() // Its patience begins anew.
				return err
			}
			return errors.New("forbidden")
		}}
		if _, err := transport.RoundTrip(listNodes(t)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took < time.Minute+readyWithin-20*readyInterval || took > time.Minute+2*readyWithin {
			t.Errorf("it was asked after %s", took)
		}
	})
}

func TestOtherErrorsAreForTheInformer(t *testing.T) {
	_, broke := broken()
	transport := &patientTransport{ctx: t.Context(), next: &script{broken}}
	if _, err := transport.RoundTrip(listNodes(t)); err == nil || err.Error() != broke.Error() {
		t.Errorf("got %v", err)
	}
}

func TestARequestEndsWithTheScheduler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		transport := &patientTransport{ctx: ctx, next: &script{refused}, ready: func(context.Context) error {
			_, err := refused()
			return err
		}}
		time.AfterFunc(time.Hour, cancel)
		if _, err := transport.RoundTrip(listNodes(t)); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}
