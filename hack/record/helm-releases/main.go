// Records release records: as Helm 3 and 4 store them, and as they read those of Weir.
//
//	go run . ../../../crates/weir-helm/tests/recorded/releases
//
// The directory holds weir.txt, a record Weir wrote. What is written there: helm-v3.txt and helm-v4.txt, the
// stored form of one release; helm-v3.json and helm-v4.json, its fields; weir-read-by-v3.json and
// weir-read-by-v4.json, the fields of Weir's record; labels-v3.json and labels-v4.json, the labels of the object.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	release3 "helm.sh/helm/v3/pkg/release"
	driver3 "helm.sh/helm/v3/pkg/storage/driver"
	release4 "helm.sh/helm/v4/pkg/release/v1"
	driver4 "helm.sh/helm/v4/pkg/storage/driver"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// configMaps keeps objects in memory; the drivers need nothing else.
type configMaps struct {
	client.ConfigMapInterface
	objects map[string]*core.ConfigMap
}

func (c configMaps) Get(_ context.Context, name string, _ meta.GetOptions) (*core.ConfigMap, error) {
	object, found := c.objects[name]
	if !found {
		return nil, fmt.Errorf("no config map %s", name)
	}
	return object, nil
}

func (c configMaps) Create(_ context.Context, object *core.ConfigMap, _ meta.CreateOptions) (*core.ConfigMap, error) {
	c.objects[object.Name] = object
	return object, nil
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// common is what both versions store alike; v4 adds how the objects were applied.
const common = `{
 "name": "podinfo", "namespace": "prod", "version": 3,
 "info": {
  "first_deployed": "2026-01-02T03:04:05.123456789Z", "last_deployed": "2026-02-03T04:05:06+02:00",
  "description": "Upgrade complete", "status": "deployed", "notes": "Hello <b>&\n"
 },
 "chart": {
  "metadata": {
   "name": "podinfo", "home": "https://example.com", "sources": ["https://example.com/a"], "version": "6.7.1+oci.1",
   "description": "Text with \"quotes\", ü and 😀", "keywords": ["a", "b"],
   "maintainers": [{"name": "somebody", "email": "somebody@example.com", "url": "https://example.com/s"}],
   "icon": "https://example.com/i.png", "apiVersion": "v2", "condition": "c", "tags": "t", "appVersion": "1.10",
   "deprecated": true, "annotations": {"k": "v"}, "kubeVersion": ">=1.23.0-0",
   "dependencies": [{"name": "redis", "version": "1.x", "repository": "https://example.com/r", "condition": "redis.enabled",
    "tags": ["db"], "enabled": true, "import-values": ["data", {"child": "a", "parent": "b"}], "alias": "cache"}],
   "type": "application"
  },
  "lock": {"generated": "2026-01-01T00:00:00Z", "digest": "sha256:0", "dependencies": [{"name": "redis", "version": "1.2.3", "repository": "https://example.com/r"}]},
  "templates": [{"name": "templates/a.yaml", "data": "a2luZDogQQo="}],
  "values": {"replicas": 1, "big": 1000000, "float": 1.5, "tiny": 1e-7, "null": null, "list": [1, "a", true], "deep": {"a": {"b": "<c>"}}},
  "schema": "e30=",
  "files": [{"name": "README.md", "data": "AP8="}, {"name": "empty", "data": ""}]
 },
 "config": {"replicas": 3, "x": {"y": null}},
 "manifest": "---\n# Source: podinfo/templates/a.yaml\nkind: A\n",
 "hooks": [
  {"name": "h", "kind": "Job", "path": "podinfo/templates/h.yaml", "manifest": "kind: Job\n", "events": ["pre-install", "test"],
   "last_run": {"started_at": "2026-01-02T03:04:05Z", "completed_at": "2026-01-02T03:04:09Z", "phase": "Succeeded"},
   "weight": -5, "delete_policies": ["hook-succeeded"], "output_log_policies": ["hook-failed"]},
  {"name": "g", "kind": "Pod", "path": "p", "manifest": "kind: Pod\n", "events": ["post-delete"], "last_run": {"phase": ""}}
 ]
}`

func write(directory, name string, value any) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetIndent("", " ")
	check(encoder.Encode(value))
	check(os.WriteFile(filepath.Join(directory, name), out.Bytes(), 0o644))
}

// stored is a config map with the record of a file.
func stored(path, key string) *core.ConfigMap {
	text, err := os.ReadFile(path)
	check(err)
	return &core.ConfigMap{
		ObjectMeta: meta.ObjectMeta{Name: key, Labels: map[string]string{"owner": "helm", "name": "podinfo"}},
		Data:       map[string]string{"release": strings.TrimSpace(string(text))},
	}
}

// keep writes the stored form and the labels that do not tell the time.
func keep(directory, version string, object *core.ConfigMap) {
	check(os.WriteFile(filepath.Join(directory, "helm-"+version+".txt"), []byte(object.Data["release"]+"\n"), 0o644))
	labels := maps.Clone(object.Labels)
	delete(labels, "createdAt")
	write(directory, "labels-"+version+".json", labels)
}

func main() {
	directory := os.Args[1]
	const key = "sh.helm.release.v1.podinfo.v3"
	objects := configMaps{objects: map[string]*core.ConfigMap{}}

	var three release3.Release
	check(json.Unmarshal([]byte(common), &three))
	three.Labels = map[string]string{"team": "a"}
	v3 := driver3.NewConfigMaps(objects)
	v3.Log = func(string, ...any) {}
	check(v3.Create(key, &three))
	keep(directory, "v3", objects.objects[key])
	read3, err := v3.Get(key)
	check(err)
	write(directory, "helm-v3.json", read3)

	var four release4.Release
	check(json.Unmarshal([]byte(common), &four))
	four.ApplyMethod = "ssa"
	four.Labels = map[string]string{"team": "a"}
	v4 := driver4.NewConfigMaps(objects)
	check(v4.Create(key, &four))
	keep(directory, "v4", objects.objects[key])
	read4, err := v4.Get(key)
	check(err)
	write(directory, "helm-v4.json", read4)

	ours := filepath.Join(directory, "weir.txt")
	if _, err := os.Stat(ours); err != nil {
		fmt.Println("no weir.txt yet")
		return
	}
	objects.objects[key] = stored(ours, key)
	read3, err = v3.Get(key)
	check(err)
	write(directory, "weir-read-by-v3.json", read3)
	read4, err = v4.Get(key)
	check(err)
	write(directory, "weir-read-by-v4.json", read4)
}
