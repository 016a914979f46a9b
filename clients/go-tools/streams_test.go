package tools

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/client-go/transport/spdy"
)

// A web server of this machine's Python, which answers with a listing of its folder. http.server by itself asks for the
// name of its address first, and waits long where no name server answers.
const script = `echo begun; exec python3 -c '
import http.server, os, socketserver
socketserver.ThreadingTCPServer.allow_reuse_address = True
place = (os.environ["POD_IP"], 8000)
socketserver.ThreadingTCPServer(place, http.server.SimpleHTTPRequestHandler).serve_forever()'`

// box starts a pod and waits until it runs.
func (w world) box(t *testing.T) {
	t.Helper()
	if elsewhere != "" {
		t.Skip("the pods of the other API server need not run")
	}
	address := &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}
	// A port that is not open yet would end the forwarding.
	asked := &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(8000)}
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: asked}, PeriodSeconds: 1}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "box"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "box", Image: "busybox", Command: []string{"sh", "-c", script}, ReadinessProbe: probe,
		Env: []corev1.EnvVar{{Name: "POD_IP", ValueFrom: address}},
	}}}}
	core := w.kube.CoreV1()
	w.until(t, "a service account", func() bool {
		_, err := core.ServiceAccounts(w.namespace).Get(w.ctx, "default", metav1.GetOptions{})
		return err == nil
	})
	_, err := core.Pods(w.namespace).Create(w.ctx, pod, metav1.CreateOptions{})
	ok(t, err)
	pods := cache.NewListWatchFromClient(core.RESTClient(), "pods", w.namespace, fields.Everything())
	_, err = watchtools.UntilWithSync(w.ctx, pods, &corev1.Pod{}, nil, func(event watch.Event) (bool, error) {
		for _, condition := range event.Object.(*corev1.Pod).Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	})
	ok(t, err)
}

func (w world) to(part string) *rest.Request {
	return w.kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(w.namespace).Name("box").SubResource(part)
}

func TestRemoteCommand(t *testing.T) {
	w := begin(t)
	w.box(t)
	command := []string{"sh", "-c", "tr a-z A-Z; echo err >&2; exit 3"}
	options := &corev1.PodExecOptions{Stdin: true, Stdout: true, Stderr: true, Command: command}
	place := w.to("exec").VersionedParams(options, scheme.ParameterCodec).URL()
	newer, err := remotecommand.NewWebSocketExecutor(w.config, "GET", place.String())
	ok(t, err)
	older, err := remotecommand.NewSPDYExecutor(w.config, "POST", place)
	ok(t, err)
	either, err := remotecommand.NewFallbackExecutor(newer, older, httpstream.IsUpgradeFailure)
	ok(t, err)
	for name, executor := range map[string]remotecommand.Executor{"WebSocket": newer, "SPDY": older, "fallback": either} {
		var out, errors bytes.Buffer
		streams := remotecommand.StreamOptions{Stdin: strings.NewReader("hello"), Stdout: &out, Stderr: &errors}
		err := executor.StreamWithContext(w.ctx, streams)
		isThree := err != nil && strings.Contains(err.Error(), "exit code 3")
		if !isThree || out.String() != "HELLO" || errors.String() != "err\n" {
			t.Errorf("%s: %v %q %q", name, err, out.String(), errors.String())
		}
	}
}

func TestPortForward(t *testing.T) {
	w := begin(t)
	w.box(t)
	place := w.to("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(w.config)
	ok(t, err)
	tunnel, err := portforward.NewSPDYOverWebsocketDialer(place, w.config)
	ok(t, err)
	old := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, "POST", place)
	for name, dialer := range map[string]httpstream.Dialer{"WebSocket": tunnel, "SPDY": old} {
		stop, ready, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		var errors bytes.Buffer
		forwarder, err := portforward.New(dialer, []string{"0:8000"}, stop, ready, io.Discard, &errors)
		ok(t, err)
		go func() { ended <- forwarder.ForwardPorts() }()
		select {
		case <-ready:
		case err := <-ended:
			t.Fatalf("%s: %v %s", name, err, errors.String())
		}
		ports, err := forwarder.GetPorts()
		ok(t, err)
		w.until(t, "an answer over "+name, func() bool {
			answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", ports[0].Local))
			if err != nil {
				return false
			}
			defer answer.Body.Close()
			return answer.StatusCode == http.StatusOK
		})
		close(stop)
		ok(t, <-ended)
	}
}
