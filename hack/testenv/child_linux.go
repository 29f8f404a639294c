package main

import "syscall"

// childAttributes make the kernel end a component when the supervisor is gone, however it ended.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
