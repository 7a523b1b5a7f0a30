package main

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func versionCommand(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:   "version",
		Short: "print the version",
		Long: "Version prints the version of this binary, and of the Go that built it.\n" +
			"With --json it also prints the revision in git, where the build knew it.",
		Example: "  floodwall version",
		Args:    none,
		RunE:    func(*cobra.Command, []string) error { return version(e) },
	}
	e.jsonFlag(c)
	return c
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
