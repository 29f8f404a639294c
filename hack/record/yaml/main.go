// Command yaml answers how the Go YAML libraries read and write texts, for comparison with weir-manifest.
//
//	yaml serve                      requests from stdin, answers to stdout, one JSON object per line
//	yaml record INPUTS OUTPUT       the same for a file; each answer is stored with its request
//	yaml letters                    the tables of crates/weir-manifest/src/letters.rs
//	yaml bench FILE                 seconds to read and to write the documents of FILE
//
// A request is {"op": OP, "in": TEXT}; see ops for the operations. An answer is {"out": TEXT} or {"err": TEXT}.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"

	yamlv2 "go.yaml.in/yaml/v2"
	yamlv3 "go.yaml.in/yaml/v3"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
	sigs "sigs.k8s.io/yaml"
)

type request struct {
	Op string `json:"op"`
	In string `json:"in"`
}

type exchange struct {
	Op  string  `json:"op,omitempty"`
	In  string  `json:"in,omitempty"`
	Out *string `json:"out,omitempty"`
	Err *string `json:"err,omitempty"`
}

var ops = map[string]func(in []byte) (string, error){
	// First document to JSON, as kubectl and Helm read.
	"read": func(in []byte) (string, error) {
		out, err := sigs.YAMLToJSON(in)
		return string(out), err
	},
	"read-strict": func(in []byte) (string, error) {
		out, err := sigs.YAMLToJSONStrict(in)
		return string(out), err
	},
	// All documents to a JSON array.
	"read-stream": func(in []byte) (string, error) {
		decoder := yamlv2.NewDecoder(bytes.NewReader(in))
		documents := []json.RawMessage{}
		for {
			var value interface{}
			err := decoder.Decode(&value)
			if err == io.EOF {
				break
			}
			if err != nil {
				return "", err
			}
			// Back through text: the conversion to JSON is not exported.
			text, err := yamlv2.Marshal(value)
			if err != nil {
				return "", err
			}
			document, err := sigs.YAMLToJSON(text)
			if err != nil {
				return "", err
			}
			documents = append(documents, document)
		}
		out, err := json.Marshal(documents)
		return string(out), err
	},
	// JSON to YAML, as kubectl and Helm write.
	"write": func(in []byte) (string, error) {
		var value interface{}
		decoder := json.NewDecoder(bytes.NewReader(in))
		decoder.UseNumber()
		if err := decoder.Decode(&value); err != nil {
			return "", err
		}
		out, err := sigs.Marshal(numbers(value))
		return string(out), err
	},
	// JSON to YAML as Helm's toYamlPretty writes.
	"write-pretty": func(in []byte) (string, error) {
		var value interface{}
		decoder := json.NewDecoder(bytes.NewReader(in))
		decoder.UseNumber()
		if err := decoder.Decode(&value); err != nil {
			return "", err
		}
		value = numbers(value)
		var out bytes.Buffer
		encoder := yamlv3.NewEncoder(&out)
		encoder.SetIndent(2)
		err := encoder.Encode(value)
		encoder.Close()
		return out.String(), err
	},
	// The node tree of the first document, as kustomize sees resources; one line per node.
	"nodes": func(in []byte) (string, error) {
		var document yamlv3.Node
		if err := yamlv3.Unmarshal(in, &document); err != nil {
			return "", err
		}
		var out strings.Builder
		dump(&out, &document, 0, false)
		return out.String(), nil
	},
	"nodes-comments": func(in []byte) (string, error) {
		var document yamlv3.Node
		if err := yamlv3.Unmarshal(in, &document); err != nil {
			return "", err
		}
		var out strings.Builder
		dump(&out, &document, 0, true)
		return out.String(), nil
	},
	// First document to JSON with the resolver of yaml.v3, as kustomize serialises resources.
	"read-core": func(in []byte) (string, error) {
		var value interface{}
		if err := yamlv3.Unmarshal(in, &value); err != nil {
			return "", err
		}
		out, err := json.Marshal(value)
		return string(out), err
	},
	// First document parsed to nodes and written again by yaml.v3 with an indentation of 2, 4 and kyaml's layout.
	"rewrite-2": func(in []byte) (string, error) { return rewrite(in, 2, false) },
	"rewrite-4": func(in []byte) (string, error) { return rewrite(in, 4, false) },
	"rewrite-compact": func(in []byte) (string, error) { return rewrite(in, 2, true) },
	// A resource as `kustomize build` prints it.
	"kustomize": func(in []byte) (string, error) {
		node, err := kyaml.Parse(string(in))
		if err != nil {
			return "", err
		}
		text, err := node.MarshalJSON()
		if err != nil {
			return "", err
		}
		out, err := sigs.JSONToYAML(text)
		return string(out), err
	},
	"kyaml-string": func(in []byte) (string, error) {
		node, err := kyaml.Parse(string(in))
		if err != nil {
			return "", err
		}
		return node.String()
	},
}

// numbers turns JSON numbers into the Go numbers that readers of manifests make of them.
func numbers(value interface{}) interface{} {
	switch value := value.(type) {
	case json.Number:
		var number interface{}
		text := value.String()
		if _, err := fmt.Sscan(text, new(int64)); err == nil && !strings.ContainsAny(text, ".eE") {
			var integer int64
			fmt.Sscan(text, &integer)
			number = integer
		} else if err := json.Unmarshal([]byte(text), new(uint64)); err == nil {
			var integer uint64
			json.Unmarshal([]byte(text), &integer)
			number = integer
		} else {
			number, _ = value.Float64()
		}
		return number
	case []interface{}:
		for i := range value {
			value[i] = numbers(value[i])
		}
	case map[string]interface{}:
		for key := range value {
			value[key] = numbers(value[key])
		}
	}
	return value
}

func rewrite(in []byte, indent int, compact bool) (string, error) {
	var document yamlv3.Node
	if err := yamlv3.Unmarshal(in, &document); err != nil {
		return "", err
	}
	var out bytes.Buffer
	encoder := yamlv3.NewEncoder(&out)
	encoder.SetIndent(indent)
	if compact {
		encoder.CompactSeqIndent()
	}
	if err := encoder.Encode(&document); err != nil {
		return "", err
	}
	err := encoder.Close()
	return out.String(), err
}

func dump(out *strings.Builder, node *yamlv3.Node, depth int, comments bool) {
	kinds := map[yamlv3.Kind]string{0: "none", yamlv3.DocumentNode: "document", yamlv3.MappingNode: "mapping",
		yamlv3.SequenceNode: "sequence", yamlv3.ScalarNode: "scalar", yamlv3.AliasNode: "alias"}
	fmt.Fprintf(out, "%s%s", strings.Repeat(" ", depth), kinds[node.Kind])
	if comments {
		if node.Kind == yamlv3.ScalarNode {
			fmt.Fprintf(out, " %s", quoted(node.Value))
		}
		for _, comment := range []struct{ name, text string }{
			{"head", node.HeadComment}, {"line", node.LineComment}, {"foot", node.FootComment}} {
			if comment.text != "" {
				fmt.Fprintf(out, " %s=%s", comment.name, quoted(comment.text))
			}
		}
		out.WriteString("\n")
	} else {
		fmt.Fprintf(out, " %s %d %d:%d", node.Tag, node.Style, node.Line, node.Column)
		if node.Anchor != "" {
			fmt.Fprintf(out, " &%s", node.Anchor)
		}
		fmt.Fprintf(out, " %s\n", quoted(node.Value))
	}
	for _, child := range node.Content {
		dump(out, child, depth+1, comments)
	}
}

func quoted(text string) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.Encode(text)
	return strings.TrimSuffix(out.String(), "\n")
}

func answer(r request) (x exchange) {
	x = exchange{Op: r.Op, In: r.In}
	op, ok := ops[r.Op]
	if !ok {
		text := "no such operation: " + r.Op
		x.Err = &text
		return x
	}
	defer func() {
		if problem := recover(); problem != nil {
			text := fmt.Sprintf("panic: %v", problem)
			x.Out, x.Err = nil, &text
		}
	}()
	out, err := op([]byte(r.In))
	if err != nil {
		text := err.Error()
		x.Err = &text
		return x
	}
	x.Out = &out
	return x
}

func each(in io.Reader, out io.Writer, keep bool) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<28)
	writer := bufio.NewWriter(out)
	encoder := json.NewEncoder(writer)
	encoder.SetEscapeHTML(false)
	for lines.Scan() {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return err
		}
		x := answer(r)
		if !keep {
			x.Op, x.In = "", ""
		}
		if err := encoder.Encode(x); err != nil {
			return err
		}
		if !keep {
			if err := writer.Flush(); err != nil {
				return err
			}
		}
	}
	if err := writer.Flush(); err != nil {
		return err
	}
	return lines.Err()
}

func bench(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	best := map[string]time.Duration{}
	measure := func(name string, work func() error) error {
		for round := 0; round < 5; round++ {
			start := time.Now()
			if err := work(); err != nil {
				return err
			}
			if took := time.Since(start); best[name] == 0 || took < best[name] {
				best[name] = took
			}
		}
		return nil
	}
	chunks := bytes.Split(text, []byte("\n---\n"))
	var objects []interface{}
	if err := measure("read", func() error {
		objects = objects[:0]
		for _, chunk := range chunks {
			var object interface{}
			if err := sigs.Unmarshal(chunk, &object); err != nil {
				return err
			}
			objects = append(objects, object)
		}
		return nil
	}); err != nil {
		return err
	}
	if err := measure("write", func() error {
		for _, object := range objects {
			if _, err := sigs.Marshal(object); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if err := measure("nodes", func() error {
		for _, chunk := range chunks {
			var node yamlv3.Node
			if err := yamlv3.Unmarshal(chunk, &node); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	for _, name := range []string{"read", "write", "nodes"} {
		fmt.Printf("go %-6s %.3f s\n", name, best[name].Seconds())
	}
	return nil
}

func letters() {
	table := func(name, doc string, in func(rune) bool) {
		fmt.Printf("#[rustfmt::skip]\n/// %s\nconst %s: &[(u32, u32)] = &[\n", doc, name)
		start, line := rune(-1), ""
		for r := rune(128); r <= 0x110000; r++ {
			inside := r < 0x110000 && in(r)
			if inside && start < 0 {
				start = r
			}
			if !inside && start >= 0 {
				item := fmt.Sprintf("(0x%X, 0x%X),", start, r-1)
				if len(line)+len(item)+1 > 110 {
					fmt.Println("    " + line)
					line = ""
				}
				if line != "" {
					line += " "
				}
				line += item
				start = -1
			}
		}
		fmt.Println("    " + line)
		fmt.Println("];")
	}
	table("LETTERS", "Ranges of the general category L beyond ASCII.", unicode.IsLetter)
	table("DIGITS", "Ranges of the general category Nd beyond ASCII.", unicode.IsDigit)
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "serve":
		return each(os.Stdin, os.Stdout, false)
	case len(args) == 3 && args[0] == "record":
		in, err := os.Open(args[1])
		if err != nil {
			return err
		}
		defer in.Close()
		out, err := os.Create(args[2])
		if err != nil {
			return err
		}
		defer out.Close()
		return each(in, out, true)
	case len(args) == 2 && args[0] == "bench":
		return bench(args[1])
	case len(args) == 1 && args[0] == "letters":
		letters()
		return nil
	}
	return fmt.Errorf("usage: yaml serve | record INPUTS OUTPUT | bench FILE | letters")
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "yaml:", err)
		os.Exit(1)
	}
}
