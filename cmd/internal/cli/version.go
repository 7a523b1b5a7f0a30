// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"debug/buildinfo"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// VersionCommand returns the command that prints the version and the build of a program.
func VersionCommand(e *Env) *cobra.Command {
	var bill bool
	var of string
	c := &cobra.Command{
		Use:   "version",
		Short: "print the version, or what this binary was built from",
		Long: "Version prints the version of this binary, and of the Go that built it; with --json also the revision in git, where the build knew it.\n" +
			"With --sbom it prints the software bill of materials: every Go module in this binary, as CycloneDX in JSON.",
		Example: "  floodwall version\n  floodwall version --sbom",
		Args:    None,
		RunE: func(c *cobra.Command, _ []string) error {
			if bill {
				return printBill(e, of)
			}
			return version(e, c.Root().Name())
		},
	}
	e.JSONFlag(c)
	c.Flags().BoolVar(&bill, "sbom", false, "print the software bill of materials (CycloneDX 1.6, JSON)")
	c.Flags().StringVar(&of, "of", "/proc/self/exe", "with --sbom: another `binary` of the same version, for packages")
	c.Flags().MarkHidden("of")
	return c
}

// printBill prints the bill of materials of the file binary, which must have the version of this program.
func printBill(e *Env, binary string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("reading what was built: %w", err)
	}
	var text strings.Builder
	if err := writeBill(&text, info, Version()); err != nil {
		return err
	}
	e.Text(text.String())
	return nil
}

// versionReport is the output of version as JSON.
type versionReport struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // of git
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func version(e *Env, program string) error {
	v := versionReport{
		Version: Version(), Revision: buildSetting("vcs.revision"),
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if e.JSON {
		return e.PrintJSON(v)
	}
	e.Println("%s %s (%s, %s)", program, v.Version, v.Go, v.Platform)
	return nil
}

// built is the version that scripts/build sets through the linker.
var built string

// Version returns the version of this binary. It comes from the Makefile, or for `go install` from the module.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && built == "" {
		return cmp.Or(info.Main.Version, "unknown")
	}
	return cmp.Or(built, "unknown")
}

// buildSetting returns a setting from the build information of the Go command, or "" when the setting is missing.
func buildSetting(key string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}
