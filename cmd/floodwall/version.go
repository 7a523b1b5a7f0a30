package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func versionCommand(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:   "version",
		Short: "print the version",
		Args:  none,
		RunE:  func(*cobra.Command, []string) error { return version(e) },
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
		Version: "unknown", Revision: buildSetting("vcs.revision"),
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		v.Version = info.Main.Version
	}
	if e.json {
		return e.printJSON(v)
	}
	e.println("floodwall %s (%s, %s)", v.Version, v.Go, v.Platform)
	return nil
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
