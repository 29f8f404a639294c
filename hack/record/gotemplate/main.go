// Records what Helm's template engine makes of many small templates.
//
//	go run . ../../../crates/weir-gotemplate/tests/recorded
//
// Cases are the lines of cases/*.txt (⏎ stands for a line break) and the expansion of matrix*.txt:
// every line of them with VALUE replaced by every value of values.txt. The data is data.json, as .Values.
// Each record is a line of three fields separated by tabs: the template, "=" or "!", and the output or
// the error as a quoted string.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/engine"
)

const helpers = `{{ define "echo" }}<{{ . }}>{{ end }}
{{ define "fails" }}{{ fail "on purpose" }}{{ end }}
{{ define "deep" }}{{ .a.b.c }}{{ end }}
{{ define "outer" }}{{ include "deep" . }}{{ end }}
{{ define "loop" }}{{ include "loop" . }}{{ end }}
{{ define "pair" }}{{ $x := . }}{{ $x }}-{{ template "echo" $x }}{{ end }}`

func lines(path string) []string {
	file, err := os.Open(path)
	check(err)
	defer file.Close()
	var all []string
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		if text := scanner.Text(); text != "" && !strings.HasPrefix(text, "# ") {
			all = append(all, text)
		}
	}
	check(scanner.Err())
	return all
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func render(template string, data []byte) (string, error) {
	values := map[string]any{}
	check(json.Unmarshal(data, &values))
	chart := &v2.Chart{
		Metadata: &v2.Metadata{APIVersion: "v2", Name: "c", Version: "1.2.3"},
		Templates: []*common.File{
			{Name: "templates/t.yaml", Data: []byte(template)},
			{Name: "templates/_h.tpl", Data: []byte(helpers)},
		},
	}
	out, err := engine.Render(chart, common.Values{"Values": values})
	return out["c/templates/t.yaml"], err
}

func record(name string, templates []string, directory string) {
	data, err := os.ReadFile("data.json")
	check(err)
	out, err := os.Create(filepath.Join(directory, name+".txt"))
	check(err)
	defer out.Close()
	writer := bufio.NewWriter(out)
	for _, template := range templates {
		output, err := render(strings.ReplaceAll(template, "⏎", "\n"), data)
		mark := "="
		if err != nil {
			mark, output = "!", err.Error()
		}
		fmt.Fprintf(writer, "%s\t%s\t%q\n", template, mark, output)
	}
	check(writer.Flush())
	fmt.Printf("%s: %d\n", name, len(templates))
}

func main() {
	directory := os.Args[1]
	check(os.MkdirAll(directory, 0o755))
	data, err := os.ReadFile("data.json")
	check(err)
	check(os.WriteFile(filepath.Join(directory, "data.json"), data, 0o644))
	check(os.WriteFile(filepath.Join(directory, "helpers.tpl"), []byte(helpers), 0o644))
	paths, err := filepath.Glob("cases/*.txt")
	check(err)
	for _, path := range paths {
		record(strings.TrimSuffix(filepath.Base(path), ".txt"), lines(path), directory)
	}
	matrices, err := filepath.Glob("matrix*.txt")
	check(err)
	for _, path := range matrices {
		var expanded []string
		for _, pattern := range lines(path) {
			for _, value := range lines("values.txt") {
				expanded = append(expanded, strings.ReplaceAll(pattern, "VALUE", value))
			}
		}
		record(strings.TrimSuffix(path, ".txt"), expanded, directory)
	}
}
