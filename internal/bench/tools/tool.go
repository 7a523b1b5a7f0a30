package bench

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

// missingTool says why a tool cannot be measured. It makes an empty row, not an error.
type missingTool struct{ reason string }

func (e *missingTool) Error() string { return e.reason }

// debianPackages is where tools come from, when not from the package of their own name.
var debianPackages = map[string]string{
	"iptables-legacy": "iptables", "iptables-legacy-restore": "iptables", "nft": "nftables", "nginx": "nginx-light",
}

// findTool finds a program of the system, also where administrators' programs are.
func findTool(name string) (string, error) {
	for _, file := range []string{name, filepath.Join("/usr/sbin", name), filepath.Join("/sbin", name)} {
		if path, err := exec.LookPath(file); err == nil {
			return path, nil
		}
	}
	pkg := name
	if p := debianPackages[name]; p != "" {
		pkg = p
	}
	return "", &missingTool{fmt.Sprintf("%s is not installed (apt install %s)", name, pkg)}
}

// runTool runs a program of the system in a host, and returns what it said and how long it took. When the program
// refuses, which it may for what the kernel lacks, the error is a missingTool.
func runTool(ctx context.Context, h *lab.Host, stdin io.Reader, name string, args ...string) (string, time.Duration, error) {
	path, err := findTool(name)
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
		return "", 0, &missingTool{fmt.Sprintf("%s: %v: %s", name, err, line)}
	}
	if err != nil {
		return "", 0, fmt.Errorf("%s: %w", name, err)
	}
	return stdout.String(), took, nil
}

// tolerate takes a missing tool for an empty row with a reason, and returns every other error.
func tolerate(err error) (reason string, _ error) {
	var missing *missingTool
	if errors.As(err, &missing) {
		return missing.reason, nil
	}
	return "", err
}
