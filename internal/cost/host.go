package cost

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ThisHost identifies the host that this process runs on.
func ThisHost() (Host, error) {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return Host{}, fmt.Errorf("kernel's version: %w", err)
	}
	cpu, cores, err := cpus("/proc/cpuinfo")
	if err != nil {
		return Host{}, fmt.Errorf("model of the CPU: %w", err)
	}
	return Host{
		Kernel: unix.ByteSliceToString(uts.Release[:]) + " " + unix.ByteSliceToString(uts.Version[:]),
		CPU:    cpu, Cores: cores, Mitigations: mitigations("/sys/devices/system/cpu/vulnerabilities"),
	}, nil
}

// cpus are the model name of the first CPU, "" where the kernel gives none, and how many CPUs are online, whichever of them
// this process may use.
func cpus(file string) (model string, online int, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", 0, err
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "processor":
			online++
		case "model name":
			model = cmp.Or(model, strings.TrimSpace(value))
		}
	}
	return model, online, nil
}

// mitigations are those of the vulnerabilities that the CPU has, in the order of their names.
func mitigations(dir string) string {
	files, _ := filepath.Glob(filepath.Join(dir, "*")) // sorted; the pattern is good
	var states []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if state := strings.TrimSpace(string(text)); err == nil && state != "Not affected" {
			states = append(states, filepath.Base(file)+": "+state)
		}
	}
	return strings.Join(states, "; ")
}
