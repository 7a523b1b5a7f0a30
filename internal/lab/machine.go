// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"maps"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/model/cost"
)

// Machine describes the machine of a measurement. Unknown parts are empty.
type Machine struct {
	Kernel      string            `json:"kernel"`
	Arch        string            `json:"arch"`
	CPU         string            `json:"cpu"`   // model
	Cores       int               `json:"cores"` // that this process may use
	Virtual     bool              `json:"virtual"`
	MemoryMB    uint64            `json:"memory_mb"`
	Governor    string            `json:"governor,omitempty"`
	Mitigations map[string]string `json:"mitigations"` // of the vulnerabilities that the CPU has
	Tools       map[string]string `json:"tools"`       // versions of the installed ones
}

// toolVersions contains the programs that experiments use or compare with, and the arguments that print their versions.
var toolVersions = map[string][]string{
	"nft":             {"--version"},
	"iptables":        {"--version"},
	"ipset":           {"--version"},
	"iptables-legacy": {"--version"},
	"ip":              {"-V"},
	"unbound":         {"-V"},
	"nginx":           {"-v"},
	"clang":           {"--version"},
}

// DescribeMachine describes this machine.
func DescribeMachine() (Machine, error) {
	kernel, _, err := cost.Kernel()
	if err != nil {
		return Machine{}, err
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return Machine{}, fmt.Errorf("describe machine: %w", err)
	}
	m := Machine{
		Kernel: kernel, Arch: runtime.GOARCH, Cores: runtime.NumCPU(),
		MemoryMB: info.Totalram * uint64(info.Unit) >> 20,
		Governor: cost.Governor(),
		Tools:    make(map[string]string),
	}
	if cpus, err := cost.ReadCPUs(); err == nil {
		m.CPU, m.Virtual = cpus.Model, cpus.Virtual
	}
	m.Mitigations = cost.Mitigations()
	for name, args := range toolVersions {
		if out, err := exec.Command(name, args...).CombinedOutput(); err == nil { // nginx prints it to standard error
			m.Tools[name], _, _ = strings.Cut(string(out), "\n")
		}
	}
	return m, nil
}

// String returns the machine in one line.
func (m Machine) String() string {
	kind := ""
	if m.Virtual {
		kind = ", virtual"
	}
	return fmt.Sprintf("%s, %d cores%s, Linux %s", m.CPU, m.Cores, kind, m.Kernel)
}

// config returns the machine as configuration lines of the Go benchmark format.
func (m Machine) config() (lines string) {
	add := func(key, value string) {
		if value != "" {
			lines += key + ": " + value + "\n"
		}
	}
	add("goos", "linux")
	add("goarch", m.Arch)
	add("kernel", m.Kernel)
	add("cpu", m.CPU)
	add("cores", fmt.Sprint(m.Cores))
	add("governor", m.Governor)
	add("mitigations", cost.MitigationsText(m.Mitigations))
	for _, name := range slices.Sorted(maps.Keys(m.Tools)) {
		add(name, m.Tools[name])
	}
	return lines
}
