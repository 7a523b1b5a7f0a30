// SPDX-License-Identifier: Apache-2.0

// This file writes the parts of the README that show a stored result of the bench: docs/bench/rules.svg, and the part of README.md between two marks.
// If it is given the results of a run, it first stores the shown part of them.

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/internal/lab"
)

// Paths, relative to the root of the repository.
const (
	storedFile  = "docs/bench/report.json"
	pictureFile = "docs/bench/rules.svg"
	readmeFile  = "README.md"
)

// The lines of README.md before and after the table.
const (
	markBegin = "<!-- begin: written by make readme-bench from docs/bench/report.json -->\n"
	markEnd   = "<!-- end -->\n"
)

func writeReadme(top string, from []string) error {
	if len(from) > 0 {
		if err := storeReport(filepath.Join(top, storedFile), from[0]); err != nil {
			return err
		}
	}
	files, err := readmeFiles(top)
	if err != nil {
		return err
	}
	for name, text := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(top, name), []byte(text), 0o644))
	}
	return err
}

// readmeFiles returns the files that are generated from the stored result.
func readmeFiles(top string) (map[string]string, error) {
	r, err := report.Read(filepath.Join(top, storedFile))
	if err != nil {
		return nil, err
	}
	old, err := os.ReadFile(filepath.Join(top, readmeFile))
	if err != nil {
		return nil, err
	}
	before, rest, begins := strings.Cut(string(old), markBegin)
	_, after, ends := strings.Cut(rest, markEnd)
	if !begins || !ends {
		return nil, fmt.Errorf("%s: the marks %q and %q are not there", readmeFile, strings.TrimSpace(markBegin), strings.TrimSpace(markEnd))
	}
	var svg strings.Builder
	if err := picture(r).WriteSVG(&svg); err != nil {
		return nil, err
	}
	return map[string]string{
		pictureFile: svg.String(), readmeFile: before + markBegin + readmeTable(r) + markEnd + after,
	}, nil
}

// storeReport stores the part of a run's results that the README shows.
func storeReport(path, from string) error {
	r, err := report.Read(from)
	if err != nil {
		return err
	}
	for _, o := range r.Experiments {
		o.Results = slices.DeleteFunc(o.Results, func(res lab.Result) bool { return !slices.Contains(shown(), res.Name) })
		*o = report.Outcome{Name: o.Name, Doc: o.Doc, Results: o.Results, Bars: []*report.Bar{}, Tables: []*report.Table{}}
	}
	r.Experiments = slices.DeleteFunc(r.Experiments, func(o *report.Outcome) bool { return len(o.Results) == 0 })
	if len(r.Experiments) == 0 {
		return fmt.Errorf("%s: it has nothing that the README shows: run `floodwall-lab bench drop sets`", from)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(r.WriteJSON(f), f.Close())
}
