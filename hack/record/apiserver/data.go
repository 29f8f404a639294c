package main

import (
	"compress/flate"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"sort"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

const acceptDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// recordData writes one deflated text. Its lines, told apart by their first word, tab-separated:
//
//	version  JSON of /version
//	group    name, versions by preference, JSON list
//	resource JSON, see resources
//	type     name of the definition, OpenAPI v3 schema without descriptions, facts of the Go type
func recordData(server *server, out io.Writer) error {
	packed, err := flate.NewWriter(out, flate.BestCompression)
	if err != nil {
		return err
	}
	version, err := server.get("/version", "application/json")
	if err != nil {
		return err
	}
	line := func(word string, parts ...any) {
		texts := []string{word}
		for _, part := range parts {
			text, ok := part.(string)
			if !ok {
				data, _ := json.Marshal(part)
				text = string(data)
			}
			texts = append(texts, text)
		}
		fmt.Fprintln(packed, strings.Join(texts, "\t"))
	}
	line("version", version)
	for _, root := range []string{"/api", "/apis"} {
		found, err := server.get(root, acceptDiscovery)
		if err != nil {
			return err
		}
		for _, group := range found["items"].([]any) {
			if err := recordGroup(server, group.(object), line); err != nil {
				return err
			}
		}
	}
	if err := recordTypes(server, line); err != nil {
		return err
	}
	return packed.Close()
}

func recordGroup(server *server, group object, line func(string, ...any)) error {
	name, _ := group["metadata"].(object)["name"].(string)
	versions := []string{}
	for _, item := range group["versions"].([]any) {
		versions = append(versions, item.(object)["version"].(string))
	}
	line("group", name, versions)
	for _, item := range group["versions"].([]any) {
		version := item.(object)["version"].(string)
		path := "/apis/" + name + "/" + version
		if name == "" {
			path = "/api/" + version
		}
		hashes := map[string]string{}
		plain, err := server.get(path, "application/json")
		if err != nil {
			return err
		}
		for _, resource := range plain["resources"].([]any) {
			if hash, ok := resource.(object)["storageVersionHash"].(string); ok {
				hashes[resource.(object)["name"].(string)] = hash
			}
		}
		for _, entry := range item.(object)["resources"].([]any) {
			resource := entry.(object)
			plural := resource["resource"].(string)
			kind := resource["responseKind"].(object)["kind"].(string)
			if hash := hashes[plural]; hash != "" {
				resource["storageVersionHash"] = hash
				resource["storageVersion"] = storageVersion(hash, name, kind)
			}
			if contains(resource["verbs"], "list") {
				table, err := server.get(path+"/"+plural+"?limit=1", tableAccept)
				if err != nil {
					return err
				}
				columns := []any{}
				for _, column := range table["columnDefinitions"].([]any) {
					delete(column.(object), "description")
					columns = append(columns, column)
				}
				resource["columns"] = columns
			}
			resource["group"], resource["version"] = name, version
			line("resource", resource)
		}
	}
	return nil
}

func contains(list any, word string) bool {
	items, _ := list.([]any)
	for _, item := range items {
		if item == word {
			return true
		}
	}
	return false
}

// storageVersion finds the version whose hash the server publishes.
func storageVersion(hash, group, kind string) string {
	for _, version := range []string{"v1", "v2", "v1beta1", "v1beta2", "v1beta3", "v1alpha1", "v1alpha2", "v1alpha3"} {
		sum := sha256.Sum256([]byte(group + "/" + version + "/" + kind))
		if base64.StdEncoding.EncodeToString(sum[:8]) == hash {
			return version
		}
	}
	return ""
}

func recordTypes(server *server, line func(string, ...any)) error {
	index, err := server.get("/openapi/v3", "application/json")
	if err != nil {
		return err
	}
	schemas := object{}
	for _, path := range index["paths"].(object) {
		document, err := server.get(path.(object)["serverRelativeURL"].(string), "application/json")
		if err != nil {
			return err
		}
		components, _ := document["components"].(object)
		found, _ := components["schemas"].(object)
		for name, schema := range found {
			compact(schema)
			// A type shared by several groups lists in each document the groups it belongs to there.
			if old, ok := schemas[name].(object); ok {
				schema.(object)["x-kubernetes-group-version-kind"] = union(old["x-kubernetes-group-version-kind"], schema.(object)["x-kubernetes-group-version-kind"])
				if schema.(object)["x-kubernetes-group-version-kind"] == nil {
					delete(schema.(object), "x-kubernetes-group-version-kind")
				}
			}
			schemas[name] = schema
		}
	}
	types := goTypes()
	names := make([]string, 0, len(schemas))
	for name := range schemas {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		line("type", name, schemas[name], types[name])
	}
	return nil
}

func union(left, right any) any {
	a, _ := left.([]any)
	b, _ := right.([]any)
	seen := map[string]bool{}
	var all []any
	for _, item := range append(append([]any{}, a...), b...) {
		text, _ := json.Marshal(item)
		if !seen[string(text)] {
			seen[string(text)] = true
			all = append(all, item)
		}
	}
	if all == nil {
		return nil
	}
	return all
}

// compact drops descriptions and writes a reference with siblings without `allOf`.
func compact(value any) {
	switch value := value.(type) {
	case object:
		if text, ok := value["description"].(string); ok && text != "" {
			delete(value, "description")
		}
		if all, ok := value["allOf"].([]any); ok && len(all) == 1 {
			if reference, ok := all[0].(object)["$ref"]; ok {
				delete(value, "allOf")
				value["$ref"] = reference
			}
		}
		if reference, ok := value["$ref"].(string); ok {
			value["$ref"] = strings.TrimPrefix(reference, "#/components/schemas/")
		}
		for _, inner := range value {
			compact(inner)
		}
	case []any:
		for _, inner := range value {
			compact(inner)
		}
	}
}

// goTypes describes the fields of every struct that can be reached from a kind: flags (p pointer, o omitempty,
// z omitzero, @Name the embedded struct it comes from), a space, and the type as the JSON decoder prints it.
func goTypes() map[string]map[string]string {
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensions.AddToScheme, apiregistration.AddToScheme} {
		if err := add(known); err != nil {
			panic(err)
		}
	}
	found := map[string]map[string]string{}
	for _, kind := range known.AllKnownTypes() {
		walk(kind, found)
	}
	return found
}

func definitionName(kind reflect.Type) string {
	path := kind.PkgPath()
	host, rest, _ := strings.Cut(path, "/")
	labels := strings.Split(host, ".")
	for i, j := 0, len(labels)-1; i < j; i, j = i+1, j-1 {
		labels[i], labels[j] = labels[j], labels[i]
	}
	return strings.Join(labels, ".") + "." + strings.ReplaceAll(rest, "/", ".") + "." + kind.Name()
}

func walk(kind reflect.Type, found map[string]map[string]string) {
	switch kind.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Array:
		walk(kind.Elem(), found)
	case reflect.Struct:
		name := definitionName(kind)
		if _, done := found[name]; done || kind.Name() == "" {
			return
		}
		fields := map[string]string{}
		found[name] = fields
		collect(kind, fields, found)
	}
}

func collect(kind reflect.Type, fields map[string]string, found map[string]map[string]string) {
	for i := range kind.NumField() {
		field := kind.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" || !field.IsExported() {
			continue
		}
		if name == "" && field.Anonymous {
			embedded := field.Type
			if embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			if embedded.Kind() == reflect.Struct {
				inner := map[string]string{}
				collect(embedded, inner, found)
				for name, line := range inner {
					flags, kind, _ := strings.Cut(line, " ")
					if !strings.Contains(flags, "@") && embedded.Name() != "TypeMeta" {
						flags += "@" + embedded.Name()
					}
					fields[name] = flags + " " + kind
				}
			}
			continue
		}
		if name == "" {
			continue
		}
		flags := ""
		if field.Type.Kind() == reflect.Pointer {
			flags += "p"
		}
		if strings.Contains(options, "omitempty") {
			flags += "o"
		}
		if strings.Contains(options, "omitzero") {
			flags += "z"
		}
		fields[name] = flags + " " + strings.TrimPrefix(field.Type.String(), "*")
		walk(field.Type, found)
	}
}
