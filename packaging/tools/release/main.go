// SPDX-License-Identifier: Apache-2.0

// Command release writes the bill of materials and the provenance of a release, for scripts/release:
//
//	release bill VERSION TREE BINARIES PACKAGES       the bill of materials of all programs: CycloneDX 1.6, JSON
//	release provenance VERSION TREE FILES BEGAN       how the files were made: in-toto Statement v1, SLSA provenance v1, JSON
//
// TREE is a clone at the commit of the release. BINARIES has a directory for each architecture, with the programs and the bill of each
// (NAME.cdx.json, of `floodwall version --sbom`). PACKAGES has the .deb files. FILES is the directory of the files that the provenance describes.
// BEGAN is the time at which the release was started, in seconds since 1970.
//
// The bill is made of the commit alone, so a second build of the commit gives the same bytes. The provenance names this machine's tools
// and times.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const project = "github.com/floodwall/floodwall"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "floodwall: error: release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 5 {
		return errors.New("usage: release bill VERSION TREE BINARIES PACKAGES, or release provenance VERSION TREE FILES BEGAN")
	}
	switch args[0] {
	case "bill":
		return writeBill(os.Stdout, args[1], args[2], args[3], args[4])
	case "provenance":
		return writeProvenance(os.Stdout, args[1], args[2], args[3], args[4])
	}
	return fmt.Errorf("there is no %q", args[0])
}

// output returns the output of a command without white space around it.
func output(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), "TZ=UTC", "LC_ALL=C.UTF-8"), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", filepath.Base(name), strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
