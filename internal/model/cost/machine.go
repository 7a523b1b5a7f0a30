// SPDX-License-Identifier: Apache-2.0

// This file reads the host's kernel version, its CPUs, and the kernel's mitigations of their vulnerabilities.

package cost

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Kernel returns the release of the running kernel, as in "6.18.0", and its version, which says how and when it was
// built.
func Kernel() (release, version string, err error) {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return "", "", fmt.Errorf("kernel's version: %w", err)
	}
	return unix.ByteSliceToString(uts.Release[:]), unix.ByteSliceToString(uts.Version[:]), nil
}

// CPUs are the processors of a host.
type CPUs struct {
	Model   string // of the first CPU; "" if the kernel gives none
	Online  int    // number of CPUs, including those that this process may not use
	Virtual bool   // this is a virtual machine
}

// ReadCPUs reads /proc/cpuinfo.
func ReadCPUs() (c CPUs, err error) {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return c, fmt.Errorf("model of the CPU: %w", err)
	}
	return parseCPUs(string(text)), nil
}

func parseCPUs(text string) (c CPUs) {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); strings.TrimSpace(key) {
		case "processor":
			c.Online++
		case "model name":
			c.Model = cmp.Or(c.Model, value)
		case "flags":
			c.Virtual = c.Virtual || slices.Contains(strings.Fields(value), "hypervisor")
		}
	}
	return c
}

// Mitigations returns the kernel's mitigation of each vulnerability of this CPU, by the vulnerability's name.
func Mitigations() map[string]string { return mitigations("/sys/devices/system/cpu/vulnerabilities") }

func mitigations(dir string) map[string]string {
	found := make(map[string]string)
	files, _ := filepath.Glob(filepath.Join(dir, "*")) // the pattern is valid, so there is no error
	for _, file := range files {
		if state := firstLine(file); state != "" && state != "Not affected" {
			found[filepath.Base(file)] = state
		}
	}
	return found
}

// Governor returns the CPU frequency governor of the first CPU, "" if there is none.
func Governor() string { return firstLine("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") }

// firstLine returns the first line of a file, "" if it cannot be read.
func firstLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line)
}

// MitigationsText returns the mitigations as one line, sorted by the vulnerabilities' names.
func MitigationsText(mitigations map[string]string) string {
	var states []string
	for _, name := range slices.Sorted(maps.Keys(mitigations)) {
		states = append(states, name+": "+mitigations[name])
	}
	return strings.Join(states, "; ")
}
