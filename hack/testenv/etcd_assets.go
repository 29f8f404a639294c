//go:build assets

package main

import (
	"context"
	"fmt"
	"net"
	"time"
)

// startEtcd runs the etcd binary of KUBEBUILDER_ASSETS as a child process.
func startEtcd(ctx context.Context, s *supervisor, dataDir string, ports Ports) (func(), error) {
	client := fmt.Sprintf("http://127.0.0.1:%d", ports.EtcdClient)
	peer := fmt.Sprintf("http://127.0.0.1:%d", ports.EtcdPeer)
	child := s.start("etcd", s.asset("etcd"), []string{
		"--name=testenv", "--data-dir=" + dataDir, "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=testenv=" + peer,
	})
	for {
		connection, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", ports.EtcdClient), time.Second)
		if err == nil {
			_ = connection.Close()
			return child.stop, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("etcd does not listen: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
