// Records facts of a real API server for crates/weir-testcluster:
//
//	go run . data  > ../../../crates/weir-testcluster/src/builtin/data/kubernetes.deflate
//	go run . cases cases ../../../crates/weir-testcluster/tests/recorded
//
// KUBECONFIG names the server; hack/record/apiserver/record starts one with hack/testenv and does both.
package main

import (
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	config.QPS, config.Burst = -1, -1
	config.WarningHandler = rest.NoWarnings{}
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	server := &server{base: config.Host, http: http}
	switch {
	case len(args) == 1 && args[0] == "data":
		return recordData(server, os.Stdout)
	case len(args) == 3 && args[0] == "cases":
		return recordCases(server, args[1], args[2])
	default:
		return fmt.Errorf("usage: apiserver data | apiserver cases FROM TO")
	}
}
