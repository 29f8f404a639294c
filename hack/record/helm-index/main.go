// Writes what Helm's libraries make of the indexes in a directory: the JSON they store, or "error" for those they
// refuse.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	repo "helm.sh/helm/v4/pkg/repo/v1"
	"sigs.k8s.io/yaml"
)

func read(data []byte) ([]byte, error) {
	index := &repo.IndexFile{}
	var err error
	if json.Valid(data) {
		err = json.Unmarshal(data, index)
	} else {
		err = yaml.UnmarshalStrict(data, index)
	}
	if err != nil {
		return nil, err
	}
	if index.APIVersion == "" {
		return nil, repo.ErrNoAPIVersion
	}
	for name, versions := range index.Entries {
		kept := versions[:0]
		for _, version := range versions {
			if version == nil {
				continue
			}
			if version.Metadata == nil {
				version.Metadata = &chart.Metadata{}
			}
			if version.APIVersion == "" {
				version.APIVersion = chart.APIVersionV1
			}
			err := version.Validate()
			if err == nil || strings.HasPrefix(err.Error(), "validation: more than one dependency with name or alias") {
				kept = append(kept, version)
			}
		}
		index.Entries[name] = kept
	}
	index.SortEntries()
	return json.MarshalIndent(index, "", "  ")
}

func main() {
	from, to := os.Args[1], os.Args[2]
	paths, err := filepath.Glob(filepath.Join(from, "*.yaml"))
	if err != nil {
		panic(err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			panic(err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		out, err := read(bytes.Clone(data))
		if err != nil {
			fmt.Println(name, err)
			out = []byte("error")
		}
		if err := os.WriteFile(filepath.Join(to, name+".json"), out, 0o644); err != nil {
			panic(err)
		}
	}
}
