package lab

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/sys/unix"
)

// Machine describes what results were taken on. Parts that this machine does not tell are empty.
type Machine struct {
	Kernel      string            `json:"kernel"`
	Arch        string            `json:"arch"`
	CPU         string            `json:"cpu"`   // model
	Cores       int               `json:"cores"` // that this process may use
	Virtual     bool              `json:"virtual"`
	MemoryMB    uint64            `json:"memory_mb"`
	Governor    string            `json:"governor,omitempty"`
	Mitigations map[string]string `json:"mitigations"` // of the vulnerabilities that the CPU has
	Tools       map[string]string `json:"tools"`       // versions of those that are installed
}

// toolVersions are the programs that experiments compare with or rely on, and how to ask for their versions.
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
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return Machine{}, fmt.Errorf("describe machine: %w", err)
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return Machine{}, fmt.Errorf("describe machine: %w", err)
	}
	m := Machine{
		Kernel: unix.ByteSliceToString(uts.Release[:]), Arch: runtime.GOARCH, Cores: runtime.NumCPU(),
		MemoryMB: info.Totalram * uint64(info.Unit) >> 20,
		Governor: readLine("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
		Tools:    make(map[string]string),
	}
	m.CPU, m.Virtual = describeCPU()
	m.Mitigations = mitigations("/sys/devices/system/cpu/vulnerabilities")
	for name, args := range toolVersions {
		if out, err := exec.Command(name, args...).CombinedOutput(); err == nil { // nginx says it as an error
			m.Tools[name], _, _ = strings.Cut(string(out), "\n")
		}
	}
	return m, nil
}

// describeCPU returns the model name, and whether there is a hypervisor.
func describeCPU() (model string, virtual bool) {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "", false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan() && lines.Text() != ""; { // the first CPU's lines
		key, value, _ := strings.Cut(lines.Text(), ":")
		switch value = strings.TrimSpace(value); strings.TrimSpace(key) {
		case "model name":
			model = value
		case "flags":
			virtual = slices.Contains(strings.Fields(value), "hypervisor")
		}
	}
	return model, virtual
}

// mitigations reads what the kernel does about the vulnerabilities that this CPU has.
func mitigations(dir string) map[string]string {
	found := make(map[string]string)
	files, _ := filepath.Glob(filepath.Join(dir, "*")) // the pattern is good
	for _, file := range files {
		if state := readLine(file); state != "" && state != "Not affected" {
			found[filepath.Base(file)] = state
		}
	}
	return found
}

// readLine returns a file's first line, or nothing.
func readLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line)
}

// String is the machine in one line.
func (m Machine) String() string {
	kind := ""
	if m.Virtual {
		kind = ", virtual"
	}
	return fmt.Sprintf("%s, %d cores%s, Linux %s", m.CPU, m.Cores, kind, m.Kernel)
}

// config is the machine as configuration of benchmark lines.
func (m Machine) config() (config []benchfmt.Config) {
	add := func(key, value string) {
		if value != "" {
			config = append(config, benchfmt.Config{Key: key, Value: []byte(value), File: true})
		}
	}
	add("goos", "linux")
	add("goarch", m.Arch)
	add("kernel", m.Kernel)
	add("cpu", m.CPU)
	add("cores", fmt.Sprint(m.Cores))
	add("governor", m.Governor)
	var states []string
	for _, name := range slices.Sorted(maps.Keys(m.Mitigations)) {
		states = append(states, name+": "+m.Mitigations[name])
	}
	add("mitigations", strings.Join(states, "; "))
	for _, name := range slices.Sorted(maps.Keys(m.Tools)) {
		add(name, m.Tools[name])
	}
	return config
}
