//go:build !unix

package kubewright

// kubewright runs on Unix. Elsewhere this package builds, so that those who import it build, and Start fails for lack
// of /bin/sh.

import (
	"os"
	"syscall"
)

var stopSignal = os.Interrupt

func ownGroup() *syscall.SysProcAttr {
	return nil
}
