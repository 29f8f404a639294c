//go:build !linux

package main

import "syscall"

// childAttributes has nothing to add where the kernel cannot tie a component's life to the supervisor's.
func childAttributes() *syscall.SysProcAttr {
	return nil
}
