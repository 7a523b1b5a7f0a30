package main

import (
	"cmp"
	"debug/buildinfo"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

func versionCommand(e *env) *cobra.Command {
	var bill bool
	var of string
	c := &cobra.Command{
		Use:   "version",
		Short: "print the version, or what this binary was built from",
		Long: "Version prints the version of this binary, and of the Go that built it; with --json also the revision in git, where the build knew it.\n" +
			"With --sbom it prints the software bill of materials: every Go module in this binary, as CycloneDX in JSON.",
		Example: "  floodwall version\n  floodwall version --sbom",
		Args:    none,
		RunE: func(*cobra.Command, []string) error {
			if bill {
				return printBill(e, of)
			}
			return version(e)
		},
	}
	e.jsonFlag(c)
	c.Flags().BoolVar(&bill, "sbom", false, "print the software bill of materials (CycloneDX 1.6, JSON)")
	c.Flags().StringVar(&of, "of", "/proc/self/exe", "with --sbom: another `binary` of the same version, for packages")
	c.Flags().MarkHidden("of")
	return c
}

// printBill prints the bill of a binary of this version.
func printBill(e *env, binary string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("reading what was built: %w", err)
	}
	var text strings.Builder
	if err := writeBill(&text, info, versionText()); err != nil {
		return err
	}
	e.text(text.String())
	return nil
}

// versionReport is the answer of version as JSON.
type versionReport struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // of git
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func version(e *env) error {
	v := versionReport{
		Version: versionText(), Revision: buildSetting("vcs.revision"),
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if e.json {
		return e.printJSON(v)
	}
	e.println("floodwall %s (%s, %s)", v.Version, v.Go, v.Platform)
	return nil
}

// built is the version that the Makefile gives to the linker.
var built string

// versionText is the version of this binary: the Makefile's, or that of the module where `go install` built it.
func versionText() string {
	if info, ok := debug.ReadBuildInfo(); ok && built == "" {
		return cmp.Or(info.Main.Version, "unknown")
	}
	return cmp.Or(built, "unknown")
}

// buildSetting is what the Go command noted of the build, "" when it did not.
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
