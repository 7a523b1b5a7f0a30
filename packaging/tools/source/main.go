// SPDX-License-Identifier: Apache-2.0

// Command source writes files of Debian's source package, for scripts/source:
//
//	source control PACKAGING PACKAGE...   debian/control, of PACKAGING/debian/control and of what nfpm makes packages of
//	source copyright TREE                 debian/copyright, of TREE/packaging/copyright and of the licences in TREE/vendor
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "floodwall: error: source:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, args []string) error {
	switch {
	case len(args) > 2 && args[0] == "control":
		return writeControl(w, args[1], args[2:])
	case len(args) == 2 && args[0] == "copyright":
		return writeCopyright(w, args[1])
	}
	return errors.New("usage: source control PACKAGING PACKAGE..., or source copyright TREE")
}

// recipe is the part of an nfpm.yaml that is about Debian's control file.
type recipe struct {
	Description string
	Overrides   struct {
		Deb struct{ Depends, Recommends, Suggests, Replaces []string }
	}
	Deb struct{ Breaks []string }
}

// ownVersion matches the version of this release in a relation, as nfpm.yaml writes it.
var ownVersion = regexp.MustCompile(`\((=|<<) \$\{VERSION\}-1\)`)

func writeControl(w io.Writer, packaging string, names []string) error {
	source, err := os.ReadFile(filepath.Join(packaging, "debian/control"))
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s", source)
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(packaging, name, "nfpm.yaml"))
		if err != nil {
			return err
		}
		// nfpm.yaml continues the list of contents, with which the common file ends.
		if at := strings.Index("\n"+string(text), "\ndescription:"); at > 0 {
			text = text[at:]
		}
		var r recipe
		if err := yaml.Unmarshal(text, &r); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Fprintf(w, "\nPackage: %s\nArchitecture: amd64 arm64\n", name)
		d := r.Overrides.Deb
		for _, field := range []struct {
			name string
			list []string
		}{
			{"Depends", append(d.Depends, "${misc:Depends}")}, {"Recommends", d.Recommends}, {"Suggests", d.Suggests}, {"Breaks", r.Deb.Breaks},
			{"Replaces", d.Replaces}, {"Static-Built-Using", []string{"${floodwall:Static-Built-Using}"}},
		} {
			if len(field.list) > 0 {
				list := ownVersion.ReplaceAllString(strings.Join(field.list, ",\n "), "($1 $${binary:Version})")
				fmt.Fprintf(w, "%s:\n %s,\n", field.name, list)
			}
		}
		fmt.Fprintf(w, "Description: %s\n", strings.ReplaceAll(strings.TrimSpace(r.Description), "\n", "\n "))
	}
	return nil
}
