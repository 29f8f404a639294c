//go:build !assets

package main

import (
	"os"

	_ "time/tzdata" // time zones of CronJobs are validated by the API server

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics on /metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // version metric on /metrics
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func init() {
	commands["kube-apiserver"] = func(arguments []string) int {
		os.Args = append([]string{"kube-apiserver"}, arguments...)
		return cli.Run(app.NewAPIServerCommand())
	}
}
