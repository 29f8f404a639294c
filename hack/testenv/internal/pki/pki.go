// Package pki makes the certificates, keys and kubeconfig of one test environment.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const validFor = 10 * 365 * 24 * time.Hour

// Files names what Ensure wrote; all paths are absolute when the directory is.
type Files struct {
	CA, CAKey            string
	Server, ServerKey    string
	Admin, AdminKey      string
	ServiceAccountKey    string
	ServiceAccountPublic string
	// Tokens is a static token file with one token, of the cluster administrator.
	Tokens string
	// Token is the file with that token alone.
	Token string
}

func files(dir string) Files {
	at := func(name string) string { return filepath.Join(dir, name) }
	return Files{
		CA: at("ca.crt"), CAKey: at("ca.key"),
		Server: at("apiserver.crt"), ServerKey: at("apiserver.key"),
		Admin: at("admin.crt"), AdminKey: at("admin.key"),
		ServiceAccountKey: at("service-account.key"), ServiceAccountPublic: at("service-account.pub"),
		Tokens: at("tokens.csv"), Token: at("admin.token"),
	}
}

// Ensure makes a certificate authority, a serving certificate for the loopback interface, an
// administrator's client certificate and token, and a service account key in dir, unless they are there.
func Ensure(dir string) (Files, error) {
	out := files(dir)
	if _, err := os.Stat(out.Token); err == nil { // written last
		return out, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return out, err
	}
	ca := x509.Certificate{
		Subject:               pkix.Name{CommonName: "testenv-ca"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	caKey, err := issue(&ca, nil, nil, out.CA, out.CAKey)
	if err != nil {
		return out, err
	}
	server := x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.IPv4(10, 96, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if _, err := issue(&server, &ca, caKey, out.Server, out.ServerKey); err != nil {
		return out, err
	}
	admin := x509.Certificate{
		Subject:     pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if _, err := issue(&admin, &ca, caKey, out.Admin, out.AdminKey); err != nil {
		return out, err
	}
	if err := serviceAccountKey(out); err != nil {
		return out, err
	}
	random := make([]byte, 24)
	if _, err := rand.Read(random); err != nil {
		return out, err
	}
	token := hex.EncodeToString(random)
	if err := os.WriteFile(out.Tokens, []byte(token+",admin,admin,system:masters\n"), 0o600); err != nil {
		return out, err
	}
	return out, os.WriteFile(out.Token, []byte(token), 0o600)
}

// WriteKubeconfig writes the administrator's kubeconfig, certificates included, to path.
func WriteKubeconfig(path, server string, f Files) error {
	config := clientcmdapi.NewConfig()
	cluster, user := clientcmdapi.NewCluster(), clientcmdapi.NewAuthInfo()
	cluster.Server = server
	var err error
	if cluster.CertificateAuthorityData, err = os.ReadFile(f.CA); err != nil {
		return err
	}
	if user.ClientCertificateData, err = os.ReadFile(f.Admin); err != nil {
		return err
	}
	if user.ClientKeyData, err = os.ReadFile(f.AdminKey); err != nil {
		return err
	}
	context := clientcmdapi.NewContext()
	context.Cluster, context.AuthInfo, context.Namespace = "testenv", "admin", "default"
	config.Clusters["testenv"], config.AuthInfos["admin"], config.Contexts["testenv"] = cluster, user, context
	config.CurrentContext = "testenv"
	return clientcmd.WriteToFile(*config, path)
}

// issue signs template with the parent's key, or with its own when there is no parent, and writes both files.
func issue(template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey, certPath, keyPath string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(validFor)
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		return nil, fmt.Errorf("sign certificate of %q: %w", template.Subject.CommonName, err)
	}
	if err := writePEM(certPath, "CERTIFICATE", der); err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, writePEM(keyPath, "EC PRIVATE KEY", keyDER)
}

func serviceAccountKey(out Files) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := writePEM(out.ServiceAccountKey, "EC PRIVATE KEY", private); err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	return writePEM(out.ServiceAccountPublic, "PUBLIC KEY", public)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
