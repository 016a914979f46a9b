//go:build unix

package kubewright

import "syscall"

var stopSignal = syscall.SIGTERM

func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
