// Prints the SHA-256 of tar streams that Go writes for the entry lists of
// src/archive_tests.rs. Run: go run main.go
package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"
)

type entry struct {
	name    string
	content *string
}

func file(name, content string) entry { return entry{name, &content} }

func directory(name string) entry { return entry{name, nil} }

func record(label string, entries []entry) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range append([]entry{directory(".")}, entries...) {
		h := &tar.Header{Name: e.name, Typeflag: tar.TypeDir, Mode: 0o750, ModTime: time.Time{}}
		if e.content != nil {
			h.Typeflag, h.Mode, h.Size = tar.TypeReg, 0o600, int64(len(*e.content))
			if strings.HasPrefix(*e.content, "#!") {
				h.Mode = 0o700
			}
		}
		if err := w.WriteHeader(h); err != nil {
			panic(err)
		}
		if e.content != nil {
			if _, err := w.Write([]byte(*e.content)); err != nil {
				panic(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	fmt.Printf("%s %x\n", label, sha256.Sum256(out.Bytes()))
}

func main() {
	record("PLAIN", []entry{directory("a"), file("a/x", "hello\n"), file("a.b", ""), file("run.sh", "#!/bin/sh\n")})
	dir := strings.Repeat("d", 99)
	record("LONG", []entry{
		directory(dir),
		file(dir+"/"+strings.Repeat("f", 90), "1"),
		file(dir+"/"+strings.Repeat("g", 120), "22"),
		file(strings.Repeat("h/", 130)+"x", "333"),
		file("grüße/ä", "4444"),
	})
}
