// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// MostVerified is the maximum number of instructions that the verifier may process for a program. The verifier rejects a program at a million (kernel
// include/linux/bpf.h, BPF_COMPLEXITY_LIMIT_INSNS). The difference is a reserve for kernels that prune less.
const MostVerified = 700_000

// MostStackBytes is the kernel's limit for the stack of a chain of calls, in bytes (kernel kernel/bpf/verifier.c, MAX_BPF_STACK).
const MostStackBytes = 512

// Verified has the verifier's statistics of a program that it has accepted.
type Verified struct {
	Instructions int `json:"instructions"` // number of processed instructions
	States       int `json:"states"`       // total number of states that were kept
	Peak         int `json:"peak"`         // maximum number of states that were kept at the same time
	Stack        int `json:"stack"`        // size of the largest stack frame, in bytes
}

// Regular expressions for two lines of the verifier's log: its statistics, and the stack depth of each function (kernel/bpf/verifier.c,
// print_verification_stats).
var (
	statisticsLine = regexp.MustCompile(`processed (\d+) insns .* total_states (\d+) peak_states (\d+)`)
	stackLine      = regexp.MustCompile(`stack depth ([0-9+]+)`)
)

// ReadVerified parses the verifier's log of a program that was loaded with ebpf.LogLevelStats.
func ReadVerified(log string) (v Verified, err error) {
	found, stack := statisticsLine.FindStringSubmatch(log), stackLine.FindStringSubmatch(log)
	if found == nil || stack == nil {
		return v, fmt.Errorf("the verifier's log has no statistics: %q", log)
	}
	for i, to := range []*int{&v.Instructions, &v.States, &v.Peak} {
		if *to, err = strconv.Atoi(found[i+1]); err != nil {
			return v, err
		}
	}
	for text := range strings.SplitSeq(stack[1], "+") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return v, err
		}
		v.Stack = max(v.Stack, n)
	}
	return v, nil
}

// VerifierKernel has the statistics of programs from one kernel's verifier.
type VerifierKernel struct {
	Release  string              `json:"release"` // the kernel release, as from uname -r
	Programs map[string]Verified `json:"programs"`
}

// VerifierFile is the content of .ci/verifier.json. It has the known statistics of each kernel. The key is the kernel version, such as 6.1.
type VerifierFile map[string]VerifierKernel

// ReadVerifierFile reads the file at path. If there is no such file, it returns an empty VerifierFile.
func ReadVerifierFile(path string) (VerifierFile, error) {
	f := VerifierFile{}
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return f, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil {
		return nil, fmt.Errorf("verifier's statistics %s: %w", path, err)
	}
	return f, nil
}

// Write writes the file.
func (f VerifierFile) Write(path string) error {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetIndent("", "  ")
	if err := e.Encode(f); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

// VersionOf returns the version of a kernel release: 6.1 for 6.1.0-42-amd64.
func VersionOf(release string) string {
	parts := strings.SplitN(release, ".", 3)
	if len(parts) < 2 {
		return release
	}
	minor := parts[1]
	if end := strings.IndexFunc(minor, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		minor = minor[:end]
	}
	return parts[0] + "." + minor
}

// The factors by which a statistic may exceed the known value: on the same kernel release, and on another release of the same version.
const (
	sameRelease  = 0.02
	otherRelease = 0.10
)

// Compare returns a message for each statistic of a program that is too close to the verifier's limit, or too far above the known value of the
// kernel. The parameter release is the kernel release.
func (f VerifierFile) Compare(release, program string, v Verified) (wrong []string) {
	if v.Instructions > MostVerified {
		wrong = append(wrong, fmt.Sprintf("%d instructions processed, at most %d leave enough of the million that the verifier takes", v.Instructions, MostVerified))
	}
	if v.Stack > MostStackBytes {
		wrong = append(wrong, fmt.Sprintf("a frame of %d bytes, at most %d are allowed", v.Stack, MostStackBytes))
	}
	kernel, ok := f[VersionOf(release)]
	if !ok {
		return wrong // the file has no statistics of this kernel
	}
	known, ok := kernel.Programs[program]
	if !ok {
		return append(wrong, "it is not known of this kernel: make verifier")
	}
	more := otherRelease
	if kernel.Release == release {
		more = sameRelease
	}
	for _, of := range []struct {
		what       string
		got, known int
	}{
		{"instructions processed", v.Instructions, known.Instructions}, {"states", v.States, known.States}, {"states at a time", v.Peak, known.Peak},
		{"bytes in the largest frame", v.Stack, known.Stack},
	} {
		if float64(of.got) > (1+more)*float64(of.known)+1 {
			wrong = append(wrong, fmt.Sprintf("%d %s, it was %d: say why in the commit, and renew it by make verifier", of.got, of.what, of.known))
		}
	}
	return wrong
}
