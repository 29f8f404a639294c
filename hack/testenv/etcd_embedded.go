//go:build !assets

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"go.etcd.io/etcd/server/v3/embed"
)

// startEtcd runs etcd inside this process and returns a function that stops it.
// Nothing is synced to disk: the data survives a clean stop and a killed process, not a killed machine.
func startEtcd(ctx context.Context, _ *supervisor, dataDir string, ports Ports) (func(), error) {
	config := embed.NewConfig()
	config.Dir = dataDir
	config.Name = "testenv"
	client := url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", ports.EtcdClient)}
	peer := url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", ports.EtcdPeer)}
	config.ListenClientUrls = []url.URL{client}
	config.AdvertiseClientUrls = []url.URL{client}
	config.ListenPeerUrls = []url.URL{peer}
	config.AdvertisePeerUrls = []url.URL{peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.LogLevel = "panic" // errors of the start are returned; those of the stop are noise
	config.UnsafeNoFsync = true
	config.EnableGRPCGateway = false
	config.AutoCompactionMode = "periodic"
	config.AutoCompactionRetention = "5m"
	server, err := embed.StartEtcd(config)
	if err != nil {
		return nil, fmt.Errorf("start etcd in %q: %w", dataDir, err)
	}
	select {
	case <-server.Server.ReadyNotify():
		return server.Close, nil
	case err := <-server.Err():
		return nil, fmt.Errorf("etcd stopped during start-up: %w", err)
	case <-server.Server.StopNotify():
		return nil, errors.New("etcd stopped during start-up")
	case <-ctx.Done():
		server.Close()
		return nil, ctx.Err()
	}
}
