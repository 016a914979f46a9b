// Package kubewright gives tests a Kubernetes cluster: a process that `kubewright cluster` is, started in milliseconds,
// with nothing to download.
//
// It has the shape of envtest, so that a suite moves by changing an import. What envtest does not have: the controllers
// of a cluster run (Deployments become available, owners' children are collected, namespaces empty), Start takes a
// context, and the process ends with the test binary however that ends.
//
// Not here: anything that the cluster itself does. This package finds the program, starts it, reads its kubeconfig,
// applies what a suite wants to be there, and stops it.
package kubewright

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Environment is a cluster of its own. The zero value is ready to be started; fields are read by Start.
type Environment struct {
	// Program is the kubewright to run. Empty: what the environment variable KUBEWRIGHT names, else `kubewright` on the
	// PATH.
	Program string

	// Controllers are the built-in controllers to run, as the flag --controllers takes them: "all", "none" (an API
	// server alone, as envtest's), or names with commas. Empty: all.
	Controllers string

	// KubernetesVersion is the version of Kubernetes to serve, such as "1.37". Empty: the program's default.
	KubernetesVersion string

	// CRDPaths are files and folders with CustomResourceDefinitions, in YAML or JSON. Start applies them and returns
	// when they are Established. Of a folder, its own files are read, not those of folders in it. Other kinds in these
	// files are left out.
	CRDPaths []string

	// Objects are applied after the definitions. Kinds that client-go's scheme does not know carry their apiVersion and
	// kind.
	Objects []runtime.Object

	// DataDir keeps all objects in this folder; the next Start on it goes on with what is there. Empty: everything is
	// in memory.
	DataDir string

	// Args are further flags of `kubewright cluster`.
	Args []string

	// Env are variables that the program gets besides those of this process, as KEY=VALUE: KUBEWRIGHT_LOG=debug makes
	// it talk.
	Env []string

	// Log takes what the program writes to its standard error. Nil: its last lines are kept for error messages, and
	// nothing else.
	Log io.Writer

	// StartTimeout is how long Start may take. Zero: 30 seconds.
	StartTimeout time.Duration

	// StopTimeout is how long the program may take to end before Stop kills it. Zero: 10 seconds.
	StopTimeout time.Duration

	mu      sync.Mutex
	running *cluster
}

// cluster is what there is between Start and Stop.
type cluster struct {
	process    *process
	config     *rest.Config
	kubeconfig string
	// accounts says that every namespace gets its service account.
	accounts bool
}

var errNotRunning = errors.New("kubewright: the Environment does not run; call Start first")

// Start starts the cluster and returns when it answers and CRDPaths and Objects are there. The context bounds the start
// alone; the cluster runs until Stop, or until this process ends. The returned configuration is that of Config.
func (e *Environment) Start(ctx context.Context) (*rest.Config, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running != nil {
		return nil, errors.New("kubewright: the Environment runs already; a second cluster is a second Environment")
	}
	limit := cmp.Or(e.StartTimeout, 30*time.Second)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not ready within %v", limit))
	defer cancel()

	program, err := findProgram(e.Program)
	if err != nil {
		return nil, err
	}
	process, err := startProcess(program, e.arguments(), e.Env, e.Log)
	if err != nil {
		return nil, err
	}
	started, err := e.prepare(ctx, process)
	if err != nil {
		// What stopping says besides would hide why it did not start.
		_ = process.stop(cmp.Or(e.StopTimeout, 10*time.Second))
		return nil, err
	}
	e.running = started
	return rest.CopyConfig(started.config), nil
}

func (e *Environment) arguments() []string {
	arguments := []string{"cluster", "--output", "json"}
	if e.Controllers != "" {
		arguments = append(arguments, "--controllers", e.Controllers)
	}
	if e.KubernetesVersion != "" {
		arguments = append(arguments, "--kubernetes-version", e.KubernetesVersion)
	}
	if e.DataDir != "" {
		arguments = append(arguments, "--data-dir", e.DataDir)
	}
	return append(arguments, e.Args...)
}

func (e *Environment) prepare(ctx context.Context, process *process) (*cluster, error) {
	kubeconfig, err := process.ready(ctx)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubewright: cannot read the kubeconfig of the cluster: %w", err)
	}
	// A test has no reason to be throttled by itself.
	config.QPS = -1
	if err := install(ctx, config, e.CRDPaths, e.Objects); err != nil {
		return nil, err
	}
	accounts := e.Controllers == "" || e.Controllers == "all" ||
		slices.Contains(strings.Split(e.Controllers, ","), "serviceaccount")
	return &cluster{process: process, config: config, kubeconfig: kubeconfig, accounts: accounts}, nil
}

// Stop ends the cluster and returns when its process is gone. It is an error when the process had ended before by
// itself, since then tests talked to nobody; and when it had to be killed. To stop what does not run is no error.
func (e *Environment) Stop() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running == nil {
		return nil
	}
	process := e.running.process
	e.running = nil
	return process.stop(cmp.Or(e.StopTimeout, 10*time.Second))
}

// Config is the configuration of a client that may do everything (group system:masters), a copy for the caller. It
// panics when the Environment does not run.
func (e *Environment) Config() *rest.Config {
	return rest.CopyConfig(e.mustRun().config)
}

// KubeConfig is the path of the cluster's kubeconfig, for kubectl and other programs. The file goes with the cluster.
// It panics when the Environment does not run.
func (e *Environment) KubeConfig() string {
	return e.mustRun().kubeconfig
}

// PID is the number of the cluster's process.
func (e *Environment) PID() int {
	return e.mustRun().process.command.Process.Pid
}

func (e *Environment) mustRun() *cluster {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running == nil {
		panic(errNotRunning)
	}
	return e.running
}
