// Loads and renders charts with Helm's Go packages, for comparison with `cargo bench -p weir-helm --bench charts`.
//
//	bench one DIR ROUNDS    one chart again and again
//	bench all DIR           every chart in DIR once, one after the other
//
// Files are read before the clock starts; what is measured is parsing, dependencies, values, schemas and
// rendering. Prints one line: charts, failures, bytes rendered, milliseconds per round, peak memory in KiB.
package main

import (
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	commonutil "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func read(directory string) []*archive.BufferedFile {
	var files []*archive.BufferedFile
	check(filepath.WalkDir(directory, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(directory, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		files = append(files, &archive.BufferedFile{Name: filepath.ToSlash(name), Data: data})
		return err
	}))
	return files
}

// render gives the bytes of all rendered files.
func render(files []*archive.BufferedFile) (int, error) {
	chart, err := loader.LoadFiles(files)
	if err != nil {
		return 0, err
	}
	values := map[string]any{}
	if err := util.ProcessDependencies(chart, values); err != nil {
		return 0, err
	}
	options := common.ReleaseOptions{Name: "rel", Namespace: "ns", Revision: 1, IsInstall: true}
	context, err := commonutil.ToRenderValues(chart, values, options, common.DefaultCapabilities)
	if err != nil {
		return 0, err
	}
	rendered, err := engine.Render(chart, context)
	size := 0
	for _, text := range rendered {
		size += len(text)
	}
	return size, err
}

func peak() string {
	status, err := os.ReadFile("/proc/self/status")
	check(err)
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, "VmHWM:"); found {
			return strings.Fields(rest)[0]
		}
	}
	return "0"
}

func main() {
	log.SetOutput(io.Discard)
	directories, rounds := []string{os.Args[2]}, 1
	if os.Args[1] == "all" {
		found, err := filepath.Glob(filepath.Join(os.Args[2], "*", "Chart.yaml"))
		check(err)
		directories = nil
		for _, path := range found {
			directories = append(directories, filepath.Dir(path))
		}
		slices.Sort(directories)
	} else {
		var err error
		rounds, err = strconv.Atoi(os.Args[3])
		check(err)
	}
	var spent time.Duration
	failed, size := 0, 0
	for _, directory := range directories {
		files := read(directory)
		start := time.Now()
		for range rounds {
			bytes, err := render(files)
			if err != nil {
				failed++
				if os.Getenv("VERBOSE") != "" {
					fmt.Fprintf(os.Stderr, "%s: %v\n", directory, err)
				}
			}
			size += bytes
		}
		spent += time.Since(start)
	}
	fmt.Printf("%d %d %d %.3f %s\n", len(directories), failed/rounds, size/rounds, float64(spent.Microseconds())/1000/float64(rounds), peak())
}
