// Records what Helm makes of small charts.
//
//	go run . ../../../crates/weir-helm/tests/recorded/charts.json
//
// cases.txt describes them; see its head. Each record has the files, the values that were given, and the
// rendered files, the manifests if asked for, or the error.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	commonutil "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	release "helm.sh/helm/v4/pkg/release/v1"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"sigs.k8s.io/yaml"
)

type record struct {
	Case      string            `json:"case"`
	Files     map[string]string `json:"files"`
	Values    string            `json:"values,omitempty"`
	Upgrade   bool              `json:"upgrade,omitempty"`
	Sort      bool              `json:"sort,omitempty"`
	Rendered  map[string]string `json:"rendered,omitempty"`
	Manifests []string          `json:"manifests,omitempty"`
	Hooks     []string          `json:"hooks,omitempty"`
	Error     string            `json:"error,omitempty"`
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// cases reads cases.txt.
func cases(text string) []*record {
	var all []*record
	var current *record
	file := ""
	add := func(name, line string) {
		if old, found := current.Files[name]; found {
			line = old + "\n" + line
		}
		current.Files[name] = line
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		mark, rest, _ := strings.Cut(line, " ")
		switch mark {
		case "#", "":
		case "==":
			current = &record{Case: rest, Files: map[string]string{}}
			all = append(all, current)
		case "V":
			add("values.yaml", rest)
		case "U":
			current.Values += rest + "\n"
		case "T":
			current.Files["templates/t.yaml"] = strings.ReplaceAll(rest, "⏎", "\n")
		case "C":
			add("Chart.yaml", rest)
		case "S":
			current.Files["values.schema.json"] = rest
		case "M":
			current.Sort = true
		case "G":
			current.Upgrade = true
		case "F":
			file = rest
		case "|":
			add(file, rest)
		default:
			check(fmt.Errorf("not understood: %s", line))
		}
	}
	for _, record := range all {
		if _, found := record.Files["Chart.yaml"]; !found {
			record.Files["Chart.yaml"] = "apiVersion: v2\nname: c\nversion: 1.2.3\n"
		}
	}
	return all
}

func run(record *record) error {
	var files []*archive.BufferedFile
	for _, name := range slices.Sorted(maps.Keys(record.Files)) {
		files = append(files, &archive.BufferedFile{Name: name, Data: []byte(record.Files[name])})
	}
	chart, err := loader.LoadFiles(files)
	if err != nil {
		return err
	}
	if err := chart.Validate(); err != nil {
		return err
	}
	values := map[string]any{}
	if err := yaml.Unmarshal([]byte(record.Values), &values); err != nil {
		return err
	}
	if err := util.ProcessDependencies(chart, values); err != nil {
		return err
	}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.KubeVersion = common.KubeVersion{Version: "v1.33.1", Major: "1", Minor: "33"}
	options := common.ReleaseOptions{Name: "rel", Namespace: "ns", Revision: 1, IsInstall: true}
	if record.Upgrade {
		options.Revision, options.IsInstall, options.IsUpgrade = 2, false, true
	}
	context, err := commonutil.ToRenderValues(chart, values, options, capabilities)
	if err != nil {
		return err
	}
	rendered, err := engine.Render(chart, context)
	if err != nil {
		return err
	}
	record.Rendered = maps.Clone(rendered)
	if !record.Sort {
		return nil
	}
	for name := range rendered {
		if strings.HasSuffix(name, "NOTES.txt") {
			delete(rendered, name)
		}
	}
	hooks, manifests, err := releaseutil.SortManifests(rendered, nil, releaseutil.InstallOrder)
	if err != nil {
		return err
	}
	for _, manifest := range manifests {
		record.Manifests = append(record.Manifests, fmt.Sprintf("---\n# Source: %s\n%s\n", manifest.Name, manifest.Content))
	}
	for _, hook := range hooks {
		record.Hooks = append(record.Hooks, describe(hook))
	}
	return nil
}

func describe(hook *release.Hook) string {
	return fmt.Sprintf("%s %s %v weight %d delete %v", hook.Kind, hook.Name, hook.Events, hook.Weight, hook.DeletePolicies)
}

func main() {
	log.SetOutput(io.Discard)
	text, err := os.ReadFile("cases.txt")
	check(err)
	all := cases(string(text))
	for _, record := range all {
		if err := run(record); err != nil {
			record.Rendered, record.Manifests, record.Hooks = nil, nil, nil
			record.Error = err.Error()
		}
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	check(encoder.Encode(all))
	check(os.WriteFile(os.Args[1], out.Bytes(), 0o644))
	fmt.Println(len(all), "records")
}
