package kubewright

// What the package does for `go test`: clusters and namespaces that end with a test, or with a package's tests.

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

var serviceAccounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}

// cleaning is how long a cleanup may wait for the cluster.
const cleaning = 10 * time.Second

// Start starts a cluster for one test, which fails when the cluster does not start. It stops when the test and its
// subtests are over.
func Start(t testing.TB) *Environment {
	t.Helper()
	return StartWith(t, &Environment{})
}

// StartWith is Start for an Environment with fields of its own.
func StartWith(t testing.TB, e *Environment) *Environment {
	t.Helper()
	if _, err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// Run gives one cluster to all tests of a package, and returns the status to exit with:
//
//	var cluster kubewright.Environment
//
//	func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }
//
// Tests then take a namespace each (NewNamespace).
func (e *Environment) Run(m interface{ Run() int }) int {
	if _, err := e.Start(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	status := m.Run()
	if err := e.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(status, 1)
	}
	return status
}

// NewNamespace makes a namespace that is called after the test, and deletes it afterwards without waiting. When the
// controllers run, its service account "default" is there, so that pods are admitted at once. Of a test that failed,
// the Events of the namespace are logged.
func (e *Environment) NewNamespace(t testing.TB) string {
	t.Helper()
	config := e.Config()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatalf("kubewright: cannot make a client: %v", err)
	}
	namespace, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: namespacePrefix(t.Name())},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("kubewright: cannot make a namespace: %v", err)
	}
	name := namespace.Name
	t.Cleanup(func() {
		// The context of the test has ended.
		ctx, cancel := context.WithTimeout(context.Background(), cleaning)
		defer cancel()
		if t.Failed() {
			logEvents(ctx, t, client, name)
		}
		if err := client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("kubewright: cannot delete the namespace %s: %v", name, err)
		}
	})
	if e.mustRun().accounts {
		ctx, cancel := context.WithTimeoutCause(t.Context(), cleaning, fmt.Errorf("not there within %v", cleaning))
		defer cancel()
		accounts := dynamic.NewForConfigOrDie(config).Resource(serviceAccounts).Namespace(name)
		if err := waitFor(ctx, accounts, "default", func(*unstructured.Unstructured) bool { return true }); err != nil {
			t.Fatalf("kubewright: the service account of the namespace %s: %v", name, err)
		}
	}
	return name
}

func logEvents(ctx context.Context, t testing.TB, client kubernetes.Interface, namespace string) {
	events, err := client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Logf("kubewright: cannot list the Events of the namespace %s: %v", namespace, err)
		return
	}
	for _, event := range events.Items {
		about := event.InvolvedObject
		t.Logf("event: %s %s/%s: %s: %s", event.Type, about.Kind, about.Name, event.Reason, event.Message)
	}
}

// namespacePrefix makes the beginning of a namespace's name out of a test's: a label of DNS, with room for what the
// server appends.
func namespacePrefix(test string) string {
	var prefix strings.Builder
	for _, letter := range strings.ToLower(test) {
		switch {
		case letter >= 'a' && letter <= 'z' || letter >= '0' && letter <= '9':
			prefix.WriteRune(letter)
		case prefix.Len() > 0 && !strings.HasSuffix(prefix.String(), "-"):
			prefix.WriteByte('-')
		}
		if prefix.Len() == 40 {
			break
		}
	}
	return strings.TrimSuffix(prefix.String(), "-") + "-"
}
