package main

import (
	"context"
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// After an upgrade of Kubernetes the informers' client may be out of the plugin's reach, which is only logged.
func TestInformersWaitWhileTheAPIServerIsAway(t *testing.T) {
	sched, err := setUp(t, func(document string) string { return document })
	if err != nil {
		t.Fatal(err)
	}
	var client kubernetes.Interface
	sched.Profiles["gpu-topology"].SharedInformerFactory().InformerFor(&v1.Secret{}, func(its kubernetes.Interface, _ time.Duration) cache.SharedIndexInformer {
		client = its
		return cache.NewSharedIndexInformer(&cache.ListWatch{}, &v1.Secret{}, 0, nil)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := client.CoreV1().Secrets("").List(ctx, metav1.ListOptions{ResourceVersion: "0"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody listens, and a list ended with %v", err)
	}
}
