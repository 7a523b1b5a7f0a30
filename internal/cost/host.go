package cost

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// ThisHost identifies the host that this process runs on.
func ThisHost() (Host, error) {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return Host{}, fmt.Errorf("kernel's version: %w", err)
	}
	cpu, err := cpuModel("/proc/cpuinfo")
	if err != nil {
		return Host{}, err
	}
	return Host{
		Kernel: unix.ByteSliceToString(uts.Release[:]) + " " + unix.ByteSliceToString(uts.Version[:]),
		CPU:    cpu, Cores: runtime.NumCPU(), Mitigations: mitigations("/sys/devices/system/cpu/vulnerabilities"),
	}, nil
}

// cpuModel is the model name of the first CPU; where the kernel gives none, as on ARM, what it says of its part.
func cpuModel(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("model of the CPU: %w", err)
	}
	defer f.Close()
	var parts []string
	for lines := bufio.NewScanner(f); lines.Scan() && lines.Text() != ""; {
		key, value, _ := strings.Cut(lines.Text(), ":")
		switch key, value = strings.TrimSpace(key), strings.TrimSpace(value); {
		case key == "model name":
			return value, nil
		case strings.HasPrefix(key, "CPU "):
			parts = append(parts, value)
		}
	}
	return strings.Join(parts, " "), nil
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
