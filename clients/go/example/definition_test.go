package example

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kubewright/kubewright/clients/go/kubewright"
)

// A cluster of its own for one test: the API server alone, with the project's definitions.
func TestSizeHasAMinimum(t *testing.T) {
	own := kubewright.StartWith(t, &kubewright.Environment{
		CRDPaths:    []string{"testdata/crds"},
		Controllers: "none",
	})
	widgets := dynamic.NewForConfigOrDie(own.Config()).
		Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}).
		Namespace(own.NewNamespace(t))

	_, err := widgets.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1",
		"kind":       "Widget",
		"metadata":   map[string]any{"name": "small"},
		"spec":       map[string]any{"size": 0},
	}}, metav1.CreateOptions{})

	if err == nil || !strings.Contains(err.Error(), "should be greater than or equal to 1") {
		t.Fatalf("a size of 0 should be refused, got %v", err)
	}
}
