// Prints the merge facts of the Kubernetes OpenAPI document that kustomize 5.8 embeds (1.21.2) as the
// compact table crates/weir-kustomize/src/schema/kubernetes-1.21.2.txt:
//
//	go run . > ../../../crates/weir-kustomize/src/schema/kubernetes-1.21.2.txt
//
// Only types are kept from which a list with the patch strategy "merge" can be reached.
package main

import (
	"fmt"
	"os"
	"sort"
	"strings"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/kustomize/kyaml/openapi/kubernetesapi"
	"sigs.k8s.io/kustomize/kyaml/openapi/kubernetesapi/v1_21_2"
)

type edge struct {
	field  string
	kind   string // "." object, "{" map of, "[" list merged by keys
	target string // definition name, "" for scalars
	keys   string
}

func main() {
	document := &openapi_v2.Document{}
	asset := "kubernetesapi/" + strings.ReplaceAll(kubernetesapi.DefaultOpenAPI, ".", "_") + "/swagger.pb"
	if err := proto.Unmarshal(v1_21_2.MustAsset(asset), document); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	edges := map[string][]edge{}
	kinds := map[string][]string{}
	for _, named := range document.GetDefinitions().GetAdditionalProperties() {
		schema := named.GetValue()
		edges[named.GetName()] = fields(schema)
		for _, extension := range schema.GetVendorExtension() {
			if extension.GetName() == "x-kubernetes-group-version-kind" {
				kinds[named.GetName()] = gvks(extension.GetValue().GetYaml())
			}
		}
	}
	// A type matters when a merged list is below it.
	matters := map[string]bool{}
	for changed := true; changed; {
		changed = false
		for name, list := range edges {
			if matters[name] {
				continue
			}
			for _, e := range list {
				if e.kind == "[" || matters[e.target] {
					matters[name], changed = true, true
					break
				}
			}
		}
	}
	names := make([]string, 0, len(matters))
	for name := range matters {
		names = append(names, name)
	}
	sort.Strings(names)
	number := map[string]int{}
	for i, name := range names {
		number[name] = i
	}
	fmt.Println("# Kubernetes 1.21.2: where lists merge. Regenerate with hack/record/kustomize-schema.")
	for _, name := range names {
		var words []string
		for _, e := range edges[name] {
			if e.kind != "[" && !matters[e.target] {
				continue
			}
			target := "-"
			if n, found := number[e.target]; found {
				target = fmt.Sprint(n)
			}
			word := e.field + "=" + e.kind + target
			if e.kind == "[" {
				word += ":" + e.keys
			}
			words = append(words, word)
		}
		sort.Strings(words)
		fmt.Println(strings.TrimSpace("t " + name + " " + strings.Join(words, " ")))
	}
	var lines []string
	for _, name := range names {
		for _, gvk := range kinds[name] {
			lines = append(lines, fmt.Sprintf("k %s %d", gvk, number[name]))
		}
	}
	sort.Strings(lines)
	fmt.Println(strings.Join(lines, "\n"))
}

func fields(schema *openapi_v2.Schema) []edge {
	var result []edge
	for _, property := range schema.GetProperties().GetAdditionalProperties() {
		value := property.GetValue()
		name := property.GetName()
		if target := ref(value); target != "" {
			result = append(result, edge{name, ".", target, ""})
			continue
		}
		if items := value.GetItems().GetSchema(); len(items) == 1 {
			strategy, keys := merge(value)
			if strategy {
				result = append(result, edge{name, "[", ref(items[0]), keys})
			}
			continue
		}
		if extra := value.GetAdditionalProperties().GetSchema(); extra != nil {
			if target := ref(extra); target != "" {
				result = append(result, edge{name, "{", target, ""})
			}
		}
	}
	return result
}

func ref(schema *openapi_v2.Schema) string {
	return strings.TrimPrefix(schema.GetXRef(), "#/definitions/")
}

func merge(schema *openapi_v2.Schema) (bool, string) {
	strategy, key, list := "", "", ""
	for _, extension := range schema.GetVendorExtension() {
		text := strings.TrimSpace(extension.GetValue().GetYaml())
		switch extension.GetName() {
		case "x-kubernetes-patch-strategy":
			strategy = text
		case "x-kubernetes-patch-merge-key":
			key = text
		case "x-kubernetes-list-map-keys":
			var keys []string
			for _, line := range strings.Split(text, "\n") {
				keys = append(keys, strings.TrimSpace(strings.TrimPrefix(line, "-")))
			}
			list = strings.Join(keys, ",")
		}
	}
	for _, part := range strings.Split(strategy, ",") {
		if part == "merge" {
			if list != "" {
				return true, list
			}
			return true, key
		}
	}
	return false, ""
}

func gvks(text string) []string {
	var result []string
	group, version, kind := "-", "", ""
	flush := func() {
		if kind != "" {
			result = append(result, group+" "+version+" "+kind)
		}
		group, version, kind = "-", "", ""
	}
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "-") {
			flush()
			line = line[1:]
		}
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.Trim(strings.TrimSpace(value), `"'`)
		switch name {
		case "group":
			if value != "" {
				group = value
			}
		case "version":
			version = value
		case "kind":
			kind = value
		}
	}
	flush()
	return result
}
