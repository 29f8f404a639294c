package main

import (
	"os"

	_ "time/tzdata" // time zones of CronJobs

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func init() {
	commands["kube-controller-manager"] = func(arguments []string) int {
		os.Args = append([]string{"kube-controller-manager"}, arguments...)
		return cli.Run(app.NewControllerManagerCommand())
	}
}
