package shop

import (
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubewright/kubewright/clients/go/kubewright"
)

// An API server alone, as envtest's.
var cluster = kubewright.Environment{Controllers: "none"}

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

func TestAConfigMapIsWhatWasCreated(t *testing.T) {
	maps := kubernetes.NewForConfigOrDie(cluster.Config()).CoreV1().ConfigMaps("default")
	body := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "prices-"}, Data: map[string]string{"apple": "3"}}
	created, err := maps.Create(t.Context(), body, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found, err := maps.Get(t.Context(), created.Name, metav1.GetOptions{})
	if err != nil || found.Data["apple"] != "3" {
		t.Fatal(found, err)
	}
}
