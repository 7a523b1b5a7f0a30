// SPDX-License-Identifier: Apache-2.0

// This file finds and runs the system's own programs: the tools that Floodwall is compared with, and servers.

package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

// Missing is the reason why a tool cannot be measured. It causes an empty row, not an error.
type Missing struct{ Reason string }

func (e *Missing) Error() string { return e.Reason }

// debianPackages contains the Debian packages of tools whose package has another name.
var debianPackages = map[string]string{
	"iptables-legacy": "iptables", "iptables-legacy-restore": "iptables", "iptables-nft-restore": "iptables", "iptables-nft-save": "iptables",
	"nft": "nftables", "nginx": "nginx-light",
}

// find finds a program of the system. It also searches the directories of administrators' programs.
func find(name string) (string, error) {
	for _, file := range []string{name, filepath.Join("/usr/sbin", name), filepath.Join("/sbin", name)} {
		if path, err := exec.LookPath(file); err == nil {
			return path, nil
		}
	}
	pkg := name
	if p := debianPackages[name]; p != "" {
		pkg = p
	}
	return "", &Missing{fmt.Sprintf("%s is not installed (apt install %s)", name, pkg)}
}

// RunTool runs a program of the system in a host, and returns its output and the duration. If the program fails, the error is a Missing, because the
// kernel may lack a feature.
func RunTool(ctx context.Context, h *lab.Host, stdin io.Reader, name string, args ...string) (string, time.Duration, error) {
	path, err := find(name)
	if err != nil {
		return "", 0, err
	}
	var stdout, stderr bytes.Buffer
	var took time.Duration
	err = h.Do(func() error { // a child process belongs to the namespace of the thread that starts it
		cmd := exec.CommandContext(ctx, path, args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
		start := time.Now()
		defer func() { took = time.Since(start) }()
		return cmd.Run()
	})
	if ctx.Err() != nil {
		return "", 0, ctx.Err()
	}
	var refused *exec.ExitError
	if errors.As(err, &refused) {
		line, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
		return "", 0, &Missing{fmt.Sprintf("%s: %v: %s", name, err, line)}
	}
	if err != nil {
		return "", 0, fmt.Errorf("%s: %w", name, err)
	}
	return stdout.String(), took, nil
}

// Tolerate returns the reason of a Missing. It returns every other error unchanged.
func Tolerate(err error) (reason string, _ error) {
	var missing *Missing
	if errors.As(err, &missing) {
		return missing.Reason, nil
	}
	return "", err
}
