package example

import (
	"context"
	"os"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubewright/kubewright/clients/go/kubewright"
)

var cluster kubewright.Environment

// One cluster for all tests of the package.
func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

func TestDeploymentBecomesAvailable(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	namespace := cluster.NewNamespace(t)
	deployments := kubernetes.NewForConfigOrDie(cluster.Config()).AppsV1().Deployments(namespace)

	labels := map[string]string{"app": "web"}
	_, err := deployments.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	watch, err := deployments.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	for event := range watch.ResultChan() {
		if deployment, is := event.Object.(*appsv1.Deployment); is && deployment.Status.AvailableReplicas == 1 {
			return
		}
	}
	t.Fatal("the Deployment did not become available")
}
