package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/yaml"
)

// family is a document of a case file: one object and how it is varied. Variants are merge patches of the object
// that is created; updates and status changes are merge patches of the stored object.
type family struct {
	Name     string            `json:"name"`
	Object   object            `json:"object"`
	Variants map[string]object `json:"variants"`
	Updates  map[string]object `json:"updates"`
	Status   map[string]object `json:"status"`
}

const namespace = "recorded"

// recordCases sends the objects of every case file as dry runs and writes the answers, one line a case, to a file of
// the same name in the directory `to`. What differs from run to run is masked.
func recordCases(server *server, from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	home := object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": namespace}}
	if _, _, err := server.do(http.MethodPost, "/api/v1/namespaces", "application/json", "application/json", encode(home)); err != nil {
		return err
	}
	if err := server.waitFor("/api/v1/namespaces/" + namespace + "/serviceaccounts/default"); err != nil {
		return err
	}
	paths, err := server.paths()
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(from, "*.yaml"))
	if err != nil {
		return err
	}
	total := 0
	for _, file := range files {
		var out bytes.Buffer
		count, err := recordFile(server, paths, file, &out)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		total += count
		name := strings.TrimSuffix(filepath.Base(file), ".yaml") + ".jsonl"
		if err := os.WriteFile(filepath.Join(to, name), out.Bytes(), 0o644); err != nil {
			return err
		}
	}
	fmt.Fprintln(os.Stderr, total, "cases")
	return nil
}

// paths finds the path prefix of each kind, as in "apps/v1/Deployment": "/apis/apps/v1/namespaces/recorded/deployments".
func (s *server) paths() (map[string]string, error) {
	found := map[string]string{}
	for _, root := range []string{"/api", "/apis"} {
		groups, err := s.get(root, acceptDiscovery)
		if err != nil {
			return nil, err
		}
		for _, group := range groups["items"].([]any) {
			name, _ := group.(object)["metadata"].(object)["name"].(string)
			for _, item := range group.(object)["versions"].([]any) {
				version := item.(object)["version"].(string)
				prefix, key := root+"/"+name+"/"+version, name+"/"+version+"/"
				if name == "" {
					prefix, key = root+"/"+version, version+"/"
				}
				for _, entry := range item.(object)["resources"].([]any) {
					resource := entry.(object)
					path := prefix + "/" + resource["resource"].(string)
					if resource["scope"] == "Namespaced" {
						path = prefix + "/namespaces/" + namespace + "/" + resource["resource"].(string)
					}
					found[key+resource["responseKind"].(object)["kind"].(string)] = path
				}
			}
		}
	}
	return found, nil
}

func recordFile(server *server, paths map[string]string, file string, out io.Writer) (int, error) {
	input, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer input.Close()
	decoder := yaml.NewYAMLOrJSONDecoder(input, 4096)
	count := 0
	for {
		var one family
		if err := decoder.Decode(&one); err == io.EOF {
			return count, nil
		} else if err != nil {
			return count, err
		}
		if one.Object == nil {
			continue
		}
		path := paths[fmt.Sprint(one.Object["apiVersion"], "/", one.Object["kind"])]
		if path == "" {
			return count, fmt.Errorf("%s: no such kind", one.Name)
		}
		recorded, err := one.record(server, path, out)
		count += recorded
		if err != nil {
			return count, fmt.Errorf("%s: %w", one.Name, err)
		}
	}
}

func (one *family) record(server *server, path string, out io.Writer) (int, error) {
	count := 0
	emit := func(name, subresource string, old, in object, method, url string) error {
		count++
		code, answer, err := server.do(method, url+"?dryRun=All&fieldValidation=Ignore", "application/json", "application/json", encode(in))
		if err != nil {
			return err
		}
		var cells any
		if code < 300 {
			tableCode, table, err := server.do(method, url+"?dryRun=All&fieldValidation=Ignore", tableAccept, "application/json", encode(in))
			if err != nil {
				return err
			}
			if rows, ok := table["rows"].([]any); ok && tableCode < 300 && len(rows) == 1 {
				cells = rows[0].(object)["cells"]
			}
		}
		mask(in)
		result := object{"case": one.Name + "/" + name, "in": in, "code": code, "out": mask(answer)}
		if old != nil {
			result["old"] = old
		}
		if subresource != "" {
			result["subresource"] = subresource
		}
		if cells != nil {
			result["cells"] = cells
		}
		_, err = fmt.Fprintf(out, "%s\n", encode(result))
		return err
	}
	if err := emit("as it is", "", nil, one.Object, http.MethodPost, path); err != nil {
		return count, err
	}
	for _, name := range sortedKeys(one.Variants) {
		if err := emit(name, "", nil, merge(one.Object, one.Variants[name]).(object), http.MethodPost, path); err != nil {
			return count, err
		}
	}
	if len(one.Updates)+len(one.Status) == 0 {
		return count, nil
	}
	code, stored, err := server.do(http.MethodPost, path, "application/json", "application/json", encode(one.Object))
	if err != nil || code >= 300 {
		return count, fmt.Errorf("cannot create: %d %v %w", code, stored["message"], err)
	}
	url := path + "/" + stored["metadata"].(object)["name"].(string)
	// A controller may write between reading and writing: then once more.
	change := func(name, subresource string, patch object) error {
		old, err := server.get(url, "application/json")
		if err != nil {
			return err
		}
		version := old["metadata"].(object)["resourceVersion"]
		mask(old)
		full := url
		if subresource != "" {
			full += "/" + subresource
		}
		in := merge(old, patch).(object)
		in["metadata"] = merge(in["metadata"], object{"resourceVersion": version})
		for range 20 {
			code, _, err := server.do(http.MethodPut, full+"?dryRun=All&fieldValidation=Ignore", "application/json", "application/json", encode(in))
			if err != nil {
				return err
			}
			if code != http.StatusConflict {
				break
			}
			time.Sleep(100 * time.Millisecond)
			if old, err = server.get(url, "application/json"); err != nil {
				return err
			}
			version = old["metadata"].(object)["resourceVersion"]
			mask(old)
			in = merge(merge(old, patch), object{"metadata": object{"resourceVersion": version}}).(object)
		}
		return emit(name, subresource, old, in, http.MethodPut, full)
	}
	for _, name := range sortedKeys(one.Updates) {
		if err := change("update: "+name, "", one.Updates[name]); err != nil {
			return count, err
		}
	}
	for _, name := range sortedKeys(one.Status) {
		if err := change("status: "+name, "status", one.Status[name]); err != nil {
			return count, err
		}
	}
	_, _, err = server.do(http.MethodDelete, url+"?gracePeriodSeconds=0&propagationPolicy=Background", "application/json", "", nil)
	return count, err
}

// mask drops what differs from run to run and is not given by the object.
func mask(answer object) object {
	if metadata, ok := answer["metadata"].(object); ok {
		for _, key := range []string{"uid", "resourceVersion", "managedFields", "selfLink"} {
			delete(metadata, key)
		}
		if _, ok := metadata["creationTimestamp"].(string); ok {
			metadata["creationTimestamp"] = "2001-01-01T00:00:00Z"
		}
	}
	if details, ok := answer["details"].(object); ok && answer["kind"] == "Status" {
		delete(details, "uid")
	}
	return answer
}

func merge(target, patch any) any {
	changes, ok := patch.(object)
	if !ok {
		return patch
	}
	merged := object{}
	if old, ok := target.(object); ok {
		for key, value := range old {
			merged[key] = value
		}
	}
	for key, value := range changes {
		if value == nil {
			delete(merged, key)
		} else {
			merged[key] = merge(merged[key], value)
		}
	}
	return merged
}

func encode(value any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err)
	}
	return bytes.TrimSpace(out.Bytes())
}

func sortedKeys(values map[string]object) []string {
	keys := make([]string, 0, len(values))
	for key := range values {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

func (s *server) waitFor(path string) error {
	for range 300 {
		code, _, err := s.do(http.MethodGet, path, "application/json", "", nil)
		if err != nil {
			return err
		}
		if code == http.StatusOK {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("%s did not appear", path)
}
