// This file finds and runs the system's own programs: those that Floodwall is measured beside, and servers.

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

// Missing says why a tool cannot be measured. It makes an empty row, not an error.
type Missing struct{ Reason string }

func (e *Missing) Error() string { return e.Reason }

// debianPackages is where tools come from, when not from the package of their own name.
var debianPackages = map[string]string{
	"iptables-legacy": "iptables", "iptables-legacy-restore": "iptables", "iptables-nft-restore": "iptables", "iptables-nft-save": "iptables",
	"nft": "nftables", "nginx": "nginx-light",
}

// find finds a program of the system, also where administrators' programs are.
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

// RunTool runs a program of the system in a host, and returns what it said and how long it took. When the program
// refuses, which it may for what the kernel lacks, the error is a Missing.
func RunTool(ctx context.Context, h *lab.Host, stdin io.Reader, name string, args ...string) (string, time.Duration, error) {
	path, err := find(name)
	if err != nil {
		return "", 0, err
	}
	var stdout, stderr bytes.Buffer
	var took time.Duration
	err = h.Do(func() error { // a child belongs to the namespace of the thread that starts it
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

// Tolerate takes a missing tool for an empty row with a reason, and returns every other error.
func Tolerate(err error) (reason string, _ error) {
	var missing *Missing
	if errors.As(err, &missing) {
		return missing.Reason, nil
	}
	return "", err
}
