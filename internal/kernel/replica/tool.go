// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// adminDirs are the directories of administrators' programs, which are not in every user's path.
var adminDirs = []string{"/usr/sbin", "/sbin", "/usr/local/sbin"}

// path finds a program.
func path(name string) (string, error) {
	for _, candidate := range append([]string{name}, inDirs(name)...) {
		if found, err := exec.LookPath(candidate); err == nil {
			return found, nil
		}
	}
	pkg := strings.TrimSuffix(strings.TrimSuffix(strings.Replace(name, "ip6", "ip", 1), "-save"), "-restore")
	return "", &netfilter.MissingError{Tool: name, Package: strings.Replace(pkg, "nft", "nftables", 1)}
}

func inDirs(name string) (list []string) {
	for _, dir := range adminDirs {
		list = append(list, filepath.Join(dir, name))
	}
	return list
}

// run runs a program of the system with the given input, in the namespace of the thread, and returns its output. The program is killed when the
// thread ends.
func run(ctx context.Context, input, name string, args ...string) (string, error) {
	program, err := path(name)
	if err != nil {
		return "", err
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	cmd.Env = append(os.Environ(), "LC_ALL=C", "LANG=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = netfilter.OutputLimit
	if err := cmd.Run(); err != nil {
		message, _, _ := strings.Cut(strings.TrimSpace(errs.String()), "\n")
		if message == "" {
			message = err.Error()
		}
		return "", &netfilter.ToolError{Tool: name, Message: message, Err: err}
	}
	return out.String(), nil
}

// lines joins the lines of a script.
func lines(list ...string) string { return strings.Join(list, "\n") + "\n" }

func quoted(text string) string { return fmt.Sprintf("%q", text) }
