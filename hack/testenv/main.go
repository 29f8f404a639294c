// Command testenv runs a real Kubernetes control plane for tests on the loopback interface.
//
// It embeds etcd, kube-apiserver and kube-controller-manager, and plays scheduler, kubelet,
// volume provisioner and load balancer with a small controller, so that objects become ready
// (or fail on request) without containers. The script `testenv` beside this file builds and
// drives it.
package main

import (
	"fmt"
	"os"
)

// command is one sub-command: its arguments in, its exit code out.
type command func(arguments []string) int

// commands is filled by the files of this package; the build tag `assets` leaves out the
// embedded kube-apiserver and etcd.
var commands = map[string]command{
	"run":  runCommand,
	"wait": waitCommand,
}

func main() {
	if len(os.Args) >= 2 {
		if run, found := commands[os.Args[1]]; found {
			os.Exit(run(os.Args[2:]))
		}
	}
	fmt.Fprintln(os.Stderr, "testenv: this binary is driven by the script hack/testenv/testenv")
	os.Exit(2)
}
