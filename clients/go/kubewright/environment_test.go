package kubewright_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubewright/kubewright/clients/go/kubewright"
)

// owner is how the tests tell this binary to be the process that ends in some way, with a cluster that it started.
const owner = "KUBEWRIGHT_TEST_OWNER_ENDS"

func TestMain(m *testing.M) {
	if how := os.Getenv(owner); how != "" {
		ownAndEnd(how)
	}
	os.Exit(m.Run())
}

func client(t *testing.T, e *kubewright.Environment) *kubernetes.Clientset {
	t.Helper()
	made, err := kubernetes.NewForConfig(e.Config())
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func runs(process int) bool {
	return !errors.Is(syscall.Kill(process, 0), syscall.ESRCH)
}

func listens(config *rest.Config) bool {
	connection, err := net.Dial("tcp", strings.TrimPrefix(config.Host, "https://"))
	if err == nil {
		connection.Close()
	}
	return err == nil
}

// eventually looks at a state that nobody tells us about.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	ticks := time.NewTicker(5 * time.Millisecond)
	defer ticks.Stop()
	late := time.After(20 * time.Second)
	for !is() {
		select {
		case <-ticks.C:
		case <-late:
			t.Fatalf("it was never so: %s", what)
		}
	}
}

// script is a program that is not kubewright.
func script(t *testing.T, lines string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+lines+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestStopLeavesNothingBehind(t *testing.T) {
	e := &kubewright.Environment{}
	config, err := e.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != e.Config().Host || !strings.HasPrefix(config.Host, "https://127.0.0.1:") {
		t.Errorf("Start gave %s, Config %s", config.Host, e.Config().Host)
	}
	if _, err := e.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "runs already") {
		t.Errorf("a second Start should be refused, got %v", err)
	}
	kubeconfig := e.KubeConfig()
	process := e.PID()
	if !runs(process) {
		t.Fatalf("%d should be the cluster", process)
	}
	if err := e.Stop(); err != nil {
		t.Fatal(err)
	}
	if runs(process) {
		t.Errorf("%d still runs after Stop", process)
	}
	if _, err := os.Stat(filepath.Dir(kubeconfig)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of the kubeconfig is left: %v", err)
	}
	if err := e.Stop(); err != nil {
		t.Errorf("to stop what does not run is no error, got %v", err)
	}
	// It may be started again.
	if _, err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := e.Stop(); err != nil {
		t.Fatal(err)
	}
}

func TestConfigNeedsARunningCluster(t *testing.T) {
	defer func() {
		if said := fmt.Sprint(recover()); !strings.Contains(said, "call Start first") {
			t.Errorf("panicked with %q", said)
		}
	}()
	(&kubewright.Environment{}).Config()
}

func TestErrorsSayWhatToDo(t *testing.T) {
	taken := kubewright.Start(t)
	address := strings.TrimPrefix(taken.Config().Host, "https://")
	for name, c := range map[string]struct {
		path  string
		named string
		e     *kubewright.Environment
		want  []string
	}{
		"not installed": {
			path: t.TempDir(),
			e:    &kubewright.Environment{},
			want: []string{"no program `kubewright` on the PATH", "the environment variable KUBEWRIGHT"},
		},
		"the variable is wrong": {
			named: "/nowhere/kubewright",
			e:     &kubewright.Environment{},
			want:  []string{"the environment variable KUBEWRIGHT names", "/nowhere/kubewright", "no such file"},
		},
		"the field is wrong": {
			e:    &kubewright.Environment{Program: "/nowhere/kubewright"},
			want: []string{"the field Program names", "/nowhere/kubewright"},
		},
		"a wrong flag": {
			e:    &kubewright.Environment{Controllers: "nonsense"},
			want: []string{"ended before it was ready", "exit status 2", `there is no controller "nonsense"`},
		},
		"an error of the program": {
			e: &kubewright.Environment{Args: []string{"--listen", address}},
			want: []string{
				"ended before it was ready", "\n\tcannot listen on " + address, "--listen 127.0.0.1:0 takes a free one",
			},
		},
		"another program": {
			e:    &kubewright.Environment{Program: script(t, "echo hello; echo world >&2")},
			want: []string{`said "hello"`, "is it kubewright?"},
		},
		"a program that hangs": {
			e: &kubewright.Environment{
				Program: script(t, "echo waiting for the moon >&2; exec tail -f /dev/null"), StartTimeout: time.Second,
			},
			want: []string{"did not start", "not ready within 1s", "waiting for the moon"},
		},
		"no definitions": {
			e:    &kubewright.Environment{CRDPaths: []string{t.TempDir()}},
			want: []string{"cannot read definitions of", "no CustomResourceDefinition"},
		},
		"no such folder": {
			e:    &kubewright.Environment{CRDPaths: []string{"/nowhere/crds"}},
			want: []string{"cannot read definitions of /nowhere/crds", "no such file"},
		},
		"a kind that is not served": {
			e: &kubewright.Environment{Objects: []runtime.Object{&unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": map[string]any{"name": "a"},
			}}}},
			want: []string{"does not serve example.com/v1, Kind=Gadget"},
		},
		"an object that is refused": {
			e:    &kubewright.Environment{Objects: []runtime.Object{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}},
			want: []string{`cannot apply the Pod "a"`, "spec.containers: Required value"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.path != "" {
				t.Setenv("PATH", c.path)
				t.Setenv("KUBEWRIGHT", "")
			}
			if c.named != "" {
				t.Setenv("KUBEWRIGHT", c.named)
			}
			_, err := c.e.Start(t.Context())
			if err == nil {
				_ = c.e.Stop()
				t.Fatal("it started")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not say %q:\n%v", want, err)
				}
			}
			if !strings.HasPrefix(err.Error(), "kubewright: ") {
				t.Errorf("the error does not say whose it is: %v", err)
			}
		})
	}
}

func TestStartEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	number := filepath.Join(t.TempDir(), "number")
	// A named pipe, so that the cancellation comes when the program runs.
	if err := syscall.Mkfifo(number, 0o600); err != nil {
		t.Fatal(err)
	}
	told := make(chan int, 1)
	go func() {
		text, _ := os.ReadFile(number)
		process, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		told <- process
		cancel()
	}()
	e := &kubewright.Environment{Program: script(t, "echo $$ >'"+number+"'; exec tail -f /dev/null")}
	_, err := e.Start(ctx)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("want the cancellation, got %v", err)
	}
	if process := <-told; process == 0 || runs(process) {
		t.Errorf("process %d still runs", process)
	}
}

func TestStopKillsWhatDoesNotEnd(t *testing.T) {
	// What the shell ignores, the program that it becomes ignores.
	kubeconfig := kubewright.Start(t).KubeConfig()
	e := &kubewright.Environment{
		Program: script(t, fmt.Sprintf(`trap '' TERM
echo '{"event":"ready","kubeconfig":"%s"}'
exec tail -f /dev/null`, kubeconfig)),
		StopTimeout: 100 * time.Millisecond,
	}
	if _, err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := e.Stop(); err == nil || !strings.Contains(err.Error(), "did not stop within 100ms and was killed") {
		t.Errorf("got %v", err)
	}
}

func TestStopSaysThatTheClusterEndedBefore(t *testing.T) {
	e := &kubewright.Environment{}
	if _, err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	kubeconfig := e.KubeConfig()
	process := e.PID()
	defer os.RemoveAll(filepath.Dir(kubeconfig))
	if err := syscall.Kill(process, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the cluster is gone", func() bool { return !runs(process) })
	if err := e.Stop(); err == nil || !strings.Contains(err.Error(), "ended before it was stopped (signal: killed)") {
		t.Errorf("got %v", err)
	}
}

// ownAndEnd is the other side of TestTheClusterEndsWithItsOwner.
func ownAndEnd(how string) {
	e := &kubewright.Environment{}
	if _, err := e.Start(context.Background()); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(e.KubeConfig())
	// Until the test has seen the cluster run.
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	switch how {
	case "exit":
		os.Exit(3)
	case "panic":
		panic("as a test does")
	}
	select {}
}

func TestTheClusterEndsWithItsOwner(t *testing.T) {
	for how, end := range map[string]func(*exec.Cmd) error{
		"exit":    nil,
		"panic":   nil,
		"kill -9": func(owner *exec.Cmd) error { return owner.Process.Kill() },
		// What a terminal does: to the whole group of the foreground.
		"Ctrl-C": func(owner *exec.Cmd) error { return syscall.Kill(-owner.Process.Pid, syscall.SIGINT) },
	} {
		t.Run(how, func(t *testing.T) {
			process := exec.Command(os.Args[0])
			process.Env = append(os.Environ(), owner+"="+how)
			process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			input, err := process.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			output, err := process.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := process.Start(); err != nil {
				t.Fatal(err)
			}
			defer process.Process.Kill()
			line, err := bufio.NewReader(output).ReadString('\n')
			if err != nil {
				t.Fatalf("the owner said %q and %v", line, err)
			}
			kubeconfig := strings.TrimSpace(line)
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				t.Fatal(err)
			}
			if !listens(config) {
				t.Fatalf("%s should be the cluster", config.Host)
			}
			if end != nil {
				err = end(process)
			} else {
				_, err = input.Write([]byte("\n"))
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := process.Wait(); err == nil {
				t.Fatal("the owner should not have ended well")
			}
			// Its number may stay for a while: nobody but init is left to ask for its status.
			eventually(t, "the cluster ended with its owner", func() bool { return !listens(config) })
			eventually(t, "its folder is gone", func() bool {
				_, err := os.Stat(filepath.Dir(kubeconfig))
				return errors.Is(err, os.ErrNotExist)
			})
		})
	}
}

func TestObjectsAndDefinitionsAreThere(t *testing.T) {
	e := kubewright.StartWith(t, &kubewright.Environment{
		CRDPaths: []string{"../example/testdata/crds/widgets.yaml"},
		Objects: []runtime.Object{
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "prices"}},
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "key-", Namespace: "shop"}},
			&unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "example.com/v1", "kind": "Widget",
				"metadata": map[string]any{"name": "first", "namespace": "shop"},
				"spec":     map[string]any{"size": int64(2)},
			}},
		},
	})
	core := client(t, e).CoreV1()
	if _, err := core.ConfigMaps("default").Get(t.Context(), "prices", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	secrets, err := core.Secrets("shop").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(secrets.Items) != 1 {
		t.Errorf("want one Secret, got %v and %v", secrets, err)
	}
	widgets := dynamic.NewForConfigOrDie(e.Config()).
		Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"})
	widget, err := widgets.Namespace("shop").Get(t.Context(), "first", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if size, _, _ := unstructured.NestedInt64(widget.Object, "spec", "size"); size != 2 {
		t.Errorf("want size 2, got %d", size)
	}
}

func TestTheVersionIsChosen(t *testing.T) {
	e := kubewright.StartWith(t, &kubewright.Environment{Controllers: "none", KubernetesVersion: "1.37"})
	version, err := kubernetes.NewForConfigOrDie(e.Config()).Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if version.GitVersion != "v1.37.2" {
		t.Errorf("it serves %s", version.GitVersion)
	}
}

func TestADataFolderIsGoneOnWith(t *testing.T) {
	e := &kubewright.Environment{DataDir: t.TempDir(), CRDPaths: []string{"../example/testdata/crds"}}
	var made, found *corev1.ConfigMap
	for _, use := range []func(*kubernetes.Clientset) error{
		func(client *kubernetes.Clientset) (err error) {
			made, err = client.CoreV1().ConfigMaps("default").
				Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{})
			return err
		},
		func(client *kubernetes.Clientset) (err error) {
			found, err = client.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
			return err
		},
	} {
		config, err := e.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = use(kubernetes.NewForConfigOrDie(config))
		if err := e.Stop(); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if made.UID != found.UID {
		t.Errorf("another object was found: %s, not %s", found.UID, made.UID)
	}
}

func TestControllersNoneIsAnAPIServerAlone(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
	}
	for controllers, account := range map[string]string{"": "default", "none": ""} {
		t.Run("controllers "+controllers, func(t *testing.T) {
			e := kubewright.StartWith(t, &kubewright.Environment{Controllers: controllers})
			namespace := e.NewNamespace(t)
			made, err := client(t, e).CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if made.Spec.ServiceAccountName != account {
				t.Errorf("want the service account %q, got %q", account, made.Spec.ServiceAccountName)
			}
		})
	}
}

// syncBuffer is a log that may be read while it is written.
type syncBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (s *syncBuffer) Write(data []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buffer.Write(data)
}

func (s *syncBuffer) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buffer.Len()
}

func TestTheLogIsTheCallers(t *testing.T) {
	var log syncBuffer
	kubewright.StartWith(t, &kubewright.Environment{Env: []string{"KUBEWRIGHT_LOG=debug"}, Log: &log})
	eventually(t, "the program talks", func() bool { return log.Len() > 0 })
}

// other is a test that notes what is done to it.
type other struct {
	testing.TB
	name     string
	failed   bool
	cleanups []func()
	said     []string
}

func (o *other) Name() string                   { return o.name }
func (o *other) Failed() bool                   { return o.failed }
func (o *other) Cleanup(f func())               { o.cleanups = append(o.cleanups, f) }
func (o *other) Logf(format string, a ...any)   { o.said = append(o.said, fmt.Sprintf(format, a...)) }
func (o *other) Error(a ...any)                 { o.failed = true; o.said = append(o.said, fmt.Sprint(a...)) }
func (o *other) Fatal(a ...any)                 { o.Error(a...); panic(o) }
func (o *other) Errorf(format string, a ...any) { o.Error(fmt.Sprintf(format, a...)) }

func (o *other) end() {
	for len(o.cleanups) > 0 {
		last := len(o.cleanups) - 1
		cleanup := o.cleanups[last]
		o.cleanups = o.cleanups[:last]
		cleanup()
	}
}

func TestATestFailsWhenItsClusterDoesNotStart(t *testing.T) {
	failing := &other{TB: t, name: "TestOther"}
	func() {
		defer func() { _ = recover() }()
		kubewright.StartWith(failing, &kubewright.Environment{Program: "/nowhere/kubewright"})
	}()
	if !failing.failed || len(failing.cleanups) != 0 {
		t.Errorf("failed: %v, cleanups: %d", failing.failed, len(failing.cleanups))
	}
}

func TestATestFailsWhenItsClusterEndsDuringIt(t *testing.T) {
	failing := &other{TB: t, name: "TestOther"}
	e := kubewright.Start(failing)
	folder := filepath.Dir(e.KubeConfig())
	defer os.RemoveAll(folder)
	process := e.PID()
	if err := syscall.Kill(process, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the cluster is gone", func() bool { return !runs(process) })
	failing.end()
	said := strings.Join(failing.said, "\n")
	if !failing.failed || !strings.Contains(said, "ended before it was stopped") {
		t.Errorf("failed: %v, said: %s", failing.failed, said)
	}
}

func TestNamespacesGoWithTheirTests(t *testing.T) {
	e := kubewright.Start(t)
	core := client(t, e).CoreV1()
	first := &other{TB: t, name: "TestShop/with a Ünicode name, and a rather long one, for a namespace"}
	second := &other{TB: t, name: first.name}
	namespace, another := e.NewNamespace(first), e.NewNamespace(second)
	if namespace == another || !strings.HasPrefix(namespace, "testshop-with-a-nicode-name-and-a-rathe") {
		t.Errorf("%s and %s", namespace, another)
	}
	if _, err := core.ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	_, err := core.Events(namespace).Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "a"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "a", Namespace: namespace},
		Type:           "Warning", Reason: "Melted", Message: "it was too hot",
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	first.failed = true
	first.end()
	if said := strings.Join(first.said, "\n"); !strings.Contains(said, "event: Warning Pod/a: Melted: it was too hot") {
		t.Errorf("a failed test should tell of its Events, said %q", said)
	}
	second.end()
	if second.failed || len(second.said) != 0 {
		t.Errorf("a test that passed should tell nothing, said %q", second.said)
	}
	for _, name := range []string{namespace, another} {
		eventually(t, "the namespace "+name+" is gone", func() bool {
			_, err := core.Namespaces().Get(t.Context(), name, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
	}
}

// tests is a package's tests, for Run.
type tests func() int

func (t tests) Run() int { return t() }

func TestRunIsAClusterForAPackage(t *testing.T) {
	var e kubewright.Environment
	var config *rest.Config
	var process int
	status := e.Run(tests(func() int {
		config, process = e.Config(), e.PID()
		if _, err := kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().
			Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		return 7
	}))
	if status != 7 || runs(process) {
		t.Errorf("status %d, still running: %v", status, runs(process))
	}
	none := kubewright.Environment{Program: "/nowhere/kubewright"}
	if none.Run(tests(func() int { t.Error("there are tests without a cluster"); return 0 })) == 0 {
		t.Error("the package should fail")
	}
}
