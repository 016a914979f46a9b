// controller-runtime as a webhook server: one defaulter of ConfigMaps, over HTTPS, with its own defaults.
//
// Arguments: the folder of tls.crt and tls.key, and the port on loopback. It runs until it is stopped.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// team writes a label where there is none.
type team struct{}

func (team) Default(_ context.Context, object *corev1.ConfigMap) error {
	if object.Labels == nil {
		object.Labels = map[string]string{}
	}
	if _, found := object.Labels["team"]; !found {
		object.Labels["team"] = "nobody"
	}
	return nil
}

func main() {
	if err := serve(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(arguments []string) error {
	if len(arguments) != 2 {
		return fmt.Errorf("two arguments are wanted (folder, port), not %q", arguments)
	}
	port, err := strconv.Atoi(arguments[1])
	if err != nil {
		return fmt.Errorf("the port: %w", err)
	}
	log.SetLogger(logr.Discard())
	server := webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, CertDir: arguments[0]})
	server.Register("/mutate--v1-configmap", admission.WithDefaulter[*corev1.ConfigMap](scheme.Scheme, team{}))
	return server.Start(context.Background())
}
