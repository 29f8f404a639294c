package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"weir.dev/testenv/internal/fakenode"
	"weir.dev/testenv/internal/pki"
)

const (
	// startTimeout bounds the time from start to a usable cluster.
	startTimeout = 90 * time.Second
	// stopTimeout is how long a component may take after SIGTERM before it is killed: an API server
	// would wait up to a minute for its watches, and no state is lost with it.
	stopTimeout = 1500 * time.Millisecond
	// restartDelay is the pause before a component that ended by itself is started again.
	restartDelay = 300 * time.Millisecond
	// quickEndsMax is how often in a row a component may end soon after its start before start-up fails.
	quickEndsMax = 5
)

// Ports are kept in the state directory, so that a restarted environment keeps its address.
type Ports struct {
	APIServer  int `json:"apiServer"`
	EtcdClient int `json:"etcdClient"`
	EtcdPeer   int `json:"etcdPeer"`
}

// supervisor runs the components of one environment until it is told to stop.
type supervisor struct {
	stateDir   string
	assetsDir  string
	executable string
	giveUp     context.CancelCauseFunc
	ports      Ports
	pki        pki.Files
}

func runCommand(arguments []string) int {
	flags := flag.NewFlagSet("run", flag.ExitOnError)
	stateDir := flags.String("state-dir", "", "directory of this environment's data, logs and kubeconfig")
	port := flags.Int("port", 0, "port of the API server; 0 keeps the one used before, or picks a free one")
	assets := flags.String("assets", os.Getenv("KUBEBUILDER_ASSETS"), "directory with kube-apiserver and etcd to use instead of the embedded ones")
	readyAfter := flags.Duration("ready-after", 200*time.Millisecond, "time from a pod's binding until it is ready, unless its annotation says otherwise")
	verbosity := flags.Int("v", 0, "log level of the Kubernetes components")
	_ = flags.Parse(arguments)
	if *stateDir == "" {
		log.Print("--state-dir is required")
		return 2
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	if err := run(ctx, *stateDir, *port, *assets, *readyAfter, *verbosity); err != nil {
		log.Printf("testenv: %v", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, stateDir string, port int, assets string, readyAfter time.Duration, verbosity int) error {
	stateDir, err := filepath.Abs(stateDir)
	if err != nil {
		return err
	}
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	s := &supervisor{stateDir: stateDir, assetsDir: assets, executable: executable}
	if err := os.MkdirAll(s.path("logs"), 0o700); err != nil {
		return err
	}
	ready := s.path("ready")
	_ = os.Remove(ready)
	if s.ports, err = ensurePorts(s.path("ports.json"), port); err != nil {
		return err
	}
	if s.pki, err = pki.Ensure(s.path("pki")); err != nil {
		return fmt.Errorf("make certificates: %w", err)
	}
	kubeconfig := s.path("kubeconfig")
	if err := pki.WriteKubeconfig(kubeconfig, fmt.Sprintf("https://127.0.0.1:%d", s.ports.APIServer), s.pki); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 500, 1000

	start, stopStarting := context.WithTimeout(ctx, startTimeout)
	defer stopStarting()
	start, s.giveUp = context.WithCancelCause(start)
	begin := time.Now()
	stopEtcd, err := startEtcd(start, s, s.path("etcd"), s.ports)
	if err != nil {
		return err
	}
	defer stopEtcd()
	log.Printf("etcd ready after %s", time.Since(begin).Round(time.Millisecond))

	apiserver := s.start("kube-apiserver", s.asset("kube-apiserver"), s.apiserverArguments(verbosity))
	defer apiserver.stop()
	if err := waitReadyz(start, config); err != nil {
		return err
	}
	log.Printf("kube-apiserver ready after %s", time.Since(begin).Round(time.Millisecond))

	manager := s.start("kube-controller-manager", s.asset("kube-controller-manager"), s.managerArguments(kubeconfig, verbosity))
	defer manager.stop()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	nodes, stopNodes := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Add(1)
	go func() {
		defer running.Done()
		fakenode.Run(nodes, client, fakenode.Options{ReadyAfter: readyAfter})
	}()
	defer func() { stopNodes(); running.Wait() }()

	if err := waitUsable(start, client); err != nil {
		return err
	}
	log.Printf("cluster ready after %s at https://127.0.0.1:%d", time.Since(begin).Round(time.Millisecond), s.ports.APIServer)
	if err := os.WriteFile(ready, []byte(time.Since(begin).Round(time.Millisecond).String()+"\n"), 0o600); err != nil {
		return err
	}
	defer os.Remove(ready)
	<-ctx.Done()
	log.Print("stopping")
	return nil
}

func (s *supervisor) path(elements ...string) string {
	return filepath.Join(append([]string{s.stateDir}, elements...)...)
}

// asset is the binary of a component in KUBEBUILDER_ASSETS, or "" for the embedded one.
func (s *supervisor) asset(name string) string {
	if s.assetsDir == "" {
		return ""
	}
	path := filepath.Join(s.assetsDir, name)
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

func (s *supervisor) apiserverArguments(verbosity int) []string {
	return []string{
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(s.ports.APIServer),
		"--endpoint-reconciler-type=none",
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", s.ports.EtcdClient),
		"--tls-cert-file=" + s.pki.Server,
		"--tls-private-key-file=" + s.pki.ServerKey,
		"--client-ca-file=" + s.pki.CA,
		"--token-auth-file=" + s.pki.Tokens,
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + s.pki.ServiceAccountPublic,
		"--service-account-signing-key-file=" + s.pki.ServiceAccountKey,
		"--service-cluster-ip-range=10.96.0.0/16",
		"--allow-privileged=true",
		"--profiling=false",
		"--v=" + strconv.Itoa(verbosity),
	}
}

func (s *supervisor) managerArguments(kubeconfig string, verbosity int) []string {
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--leader-elect=false",
		"--secure-port=0",
		"--root-ca-file=" + s.pki.CA,
		"--service-account-private-key-file=" + s.pki.ServiceAccountKey,
		"--cluster-signing-cert-file=" + s.pki.CA,
		"--cluster-signing-key-file=" + s.pki.CAKey,
		"--kube-api-qps=300",
		"--kube-api-burst=600",
		"--profiling=false",
		// What needs real machines, disks or a cloud is left to the fake nodes.
		"--controllers=*,-node-ipam-controller,-node-lifecycle-controller," +
			"-persistentvolume-attach-detach-controller,-persistentvolume-expander-controller,-taint-eviction-controller,-device-taint-eviction-controller," +
			"-bootstrap-signer-controller,-token-cleaner-controller,-ttl-controller,-resourceclaim-controller",
		"--v=" + strconv.Itoa(verbosity),
	}
}

// child is a component in a process of its own; it is started again whenever it ends by itself.
type child struct {
	stop func()
}

// start runs binary, or this program's sub-command of that name when binary is empty. Its process id is
// in `<name>.pid`; while a file `<name>.hold` exists it is not started again.
func (s *supervisor) start(name, binary string, arguments []string) child {
	if binary == "" {
		binary, arguments = s.executable, append([]string{name}, arguments...)
	}
	stopping, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		// The kernel ends the child when the thread that made it ends: keep that thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)
		pidFile, hold := s.path(name+".pid"), s.path(name+".hold")
		_ = os.Remove(hold)
		for quickEnds := 0; stopping.Err() == nil; {
			if _, err := os.Stat(hold); err != nil {
				begin := time.Now()
				err := s.runOnce(stopping, name, binary, arguments, pidFile)
				_ = os.Remove(pidFile)
				if stopping.Err() != nil {
					return
				}
				log.Printf("%s ended: %v", name, err)
				if quickEnds++; time.Since(begin) > 10*restartDelay {
					quickEnds = 0
				}
				if quickEnds == quickEndsMax { // no effect once the cluster is ready
					s.giveUp(fmt.Errorf("%s keeps ending: %v", name, err))
				}
			}
			select {
			case <-stopping.Done():
			case <-time.After(restartDelay):
			}
		}
	}()
	return child{stop: func() { stop(); <-done }}
}

func (s *supervisor) runOnce(stopping context.Context, name, binary string, arguments []string, pidFile string) error {
	logFile, err := os.OpenFile(s.path("logs", name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer logFile.Close()
	process := exec.CommandContext(stopping, binary, arguments...)
	process.Stdout, process.Stderr = logFile, logFile
	process.Dir = s.stateDir
	process.SysProcAttr = childAttributes()
	process.Cancel = func() error { return process.Process.Signal(syscall.SIGTERM) }
	process.WaitDelay = stopTimeout
	if err := process.Start(); err != nil {
		return err
	}
	if err := os.WriteFile(pidFile, []byte(strconv.Itoa(process.Process.Pid)+"\n"), 0o600); err != nil {
		log.Printf("write %s: %v", pidFile, err)
	}
	return process.Wait()
}

// ensurePorts reads the ports kept at path, or picks free ones and keeps them.
func ensurePorts(path string, apiServer int) (Ports, error) {
	var ports Ports
	if kept, err := os.ReadFile(path); err == nil {
		if err := json.Unmarshal(kept, &ports); err != nil {
			return ports, fmt.Errorf("read %q: %w", path, err)
		}
	}
	if apiServer != 0 {
		ports.APIServer = apiServer
	}
	for _, port := range []*int{&ports.APIServer, &ports.EtcdClient, &ports.EtcdPeer} {
		if *port != 0 {
			continue
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return ports, err
		}
		defer listener.Close() // held until all are picked, so that they differ
		*port = listener.Addr().(*net.TCPAddr).Port
	}
	text, err := json.Marshal(ports)
	if err != nil {
		return ports, err
	}
	return ports, os.WriteFile(path, append(text, '\n'), 0o600)
}

// waitReadyz returns once the API server says that it is ready.
func waitReadyz(ctx context.Context, config *rest.Config) error {
	quick := rest.CopyConfig(config)
	quick.Timeout = 2 * time.Second
	client, err := kubernetes.NewForConfig(quick)
	if err != nil {
		return err
	}
	return poll(ctx, "the API server is not ready", func() (bool, error) {
		answer, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err != nil {
			return false, err
		}
		return strings.TrimSpace(string(answer)) == "ok", nil
	})
}

// waitUsable returns once both nodes are ready and namespaces get their service account and CA.
func waitUsable(ctx context.Context, client kubernetes.Interface) error {
	return poll(ctx, "the cluster is not usable", func() (bool, error) {
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		if len(nodes.Items) < len(fakenode.Names) {
			return false, errors.New("nodes are missing")
		}
		for i := range nodes.Items {
			if !nodeReady(&nodes.Items[i]) {
				return false, fmt.Errorf("node %q is not ready", nodes.Items[i].Name)
			}
		}
		if _, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return false, err
		}
		_, err = client.CoreV1().ConfigMaps("default").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err == nil, err
	})
}

func nodeReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// poll calls check until it says true or the context ends; the last error is part of the answer.
func poll(ctx context.Context, what string, check func() (bool, error)) error {
	for {
		ok, err := check()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w (last answer: %v)", what, context.Cause(ctx), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// waitCommand returns 0 once the cluster of a kubeconfig is usable.
func waitCommand(arguments []string) int {
	flags := flag.NewFlagSet("wait", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig of the cluster")
	timeout := flags.Duration("timeout", 60*time.Second, "how long to wait")
	_ = flags.Parse(arguments)
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err == nil {
		err = waitReadyz(ctx, config)
	}
	if err != nil {
		log.Printf("testenv: %v", err)
		return 1
	}
	return 0
}
