// Package tools holds client-go's own tools against the cluster: what operators and kubectl are built of.
//
// With TOOLS_KUBECONFIG the same tests run against the API server that this file names, but for the streams, which need
// pods that really run.
package tools

import (
	"context"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubewright/kubewright/clients/go/kubewright"
)

// elsewhere is the kubeconfig of another API server.
var elsewhere = os.Getenv("TOOLS_KUBECONFIG")

// Nothing writes to the objects of a test but the test.
var cluster = kubewright.Environment{
	Controllers: "node,scheduler,serviceaccount,namespace",
	Args:        []string{"--runtime", "process"},
}

func TestMain(m *testing.M) {
	if elsewhere != "" {
		os.Exit(m.Run())
	}
	os.Exit(cluster.Run(m))
}

// world is a namespace of an API server, for one test.
type world struct {
	ctx       context.Context
	config    *rest.Config
	kube      *kubernetes.Clientset
	namespace string
}

func begin(t *testing.T) world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	config := configured(t)
	kube := kubernetes.NewForConfigOrDie(config)
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "tools-"}}
	made, err := kube.CoreV1().Namespaces().Create(ctx, space, metav1.CreateOptions{})
	ok(t, err)
	return world{ctx, config, kube, made.Name}
}

func configured(t *testing.T) *rest.Config {
	t.Helper()
	if elsewhere == "" {
		return rest.CopyConfig(cluster.Config())
	}
	config, err := clientcmd.BuildConfigFromFlags("", elsewhere)
	ok(t, err)
	config.QPS = -1
	return config
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"of": "tools"}}}
}

func (w world) create(t *testing.T, name string) *corev1.ConfigMap {
	t.Helper()
	made, err := w.kube.CoreV1().ConfigMaps(w.namespace).Create(w.ctx, configMap(name), metav1.CreateOptions{})
	ok(t, err)
	return made
}

// until waits for a state.
func (w world) until(t *testing.T, what string, there func() bool) {
	t.Helper()
	for !there() {
		select {
		case <-w.ctx.Done():
			t.Fatalf("never seen: %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
