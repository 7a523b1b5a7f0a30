// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/host/boot"
	"github.com/floodwall/floodwall/internal/kernel/features"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/internal/os/sockets"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// host is the source of the data that the probes read. Tests replace its files and tools by recorded text.
type host struct {
	root     fs.FS            // the directory that contains proc, sys and etc
	instance control.Instance // the instance of Floodwall on this host
	only     []string         // the requested devices; none: all
	interval time.Duration    // the time between two readings of a counter
	start    time.Time
	eth      *features.Conn

	hasDaemonUnit func() bool // whether systemd has a unit of the daemon

	// tool runs a program that changes nothing, and returns its standard output.
	tool func(ctx context.Context, name string, args ...string) ([]byte, error)
	// devices, rules and saved are read once for all probes.
	devices func() ([]*device, error)
	rules   func() (*ruleset, error)
	saved   func() ([]savedRule, error)
}

func newHost(ctx context.Context, o Options, eth *features.Conn) *host {
	h := &host{
		root: os.DirFS("/"), instance: o.Instance, only: o.Devices, interval: cmp.Or(o.interval, time.Second), start: time.Now(), eth: eth, tool: runTool,
		hasDaemonUnit: boot.HasDaemonUnit,
	}
	h.devices = sync.OnceValues(func() ([]*device, error) { return listDevices(h) })
	h.rules = sync.OnceValues(func() (*ruleset, error) { return readRules(ctx, h) })
	h.saved = sync.OnceValues(func() ([]savedRule, error) { return readSaved(ctx, h) })
	return h
}

// netFile returns the path of a file in /proc/net, in the network namespace of the calling thread.
func netFile(name string) string { return strings.TrimPrefix(sockets.ProcFile(name), "/") }

// sysctlFile returns the path of a kernel setting. Its arguments are the parts of the path, because device names may contain dots.
func sysctlFile(parts ...string) string { return "proc/sys/" + strings.Join(parts, "/") }

// maxFile is the largest number of bytes that read returns.
const maxFile = 4 << 20

// read returns the text of a file, or its first maxFile bytes.
func (h *host) read(file string) (string, error) {
	f, err := h.root.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	return string(text), err
}

// number reads a file with one number.
func (h *host) number(file string) (uint64, error) {
	text, err := h.read(file)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading /%s: %w", file, err)
	}
	return n, nil
}

// writable reports whether root can write a file in this namespace. Some settings are read-only outside of the machine's first network namespace.
func (h *host) writable(file string) bool {
	info, err := fs.Stat(h.root, file)
	return err == nil && info.Mode().Perm()&0o200 != 0
}

// twice reads counters at the start and at the end of the interval.
func twice[T any](ctx context.Context, h *host, read func() (T, error)) (before, after T, err error) {
	if before, err = read(); err != nil {
		return
	}
	if !periodic.Sleep(ctx, time.Until(h.start.Add(h.interval))) {
		return before, after, ctx.Err()
	}
	after, err = read()
	return
}

// change is a counter's value and its increase during the examination.
type change struct{ total, new uint64 }

func changed(before, after uint64) change {
	if after < before { // the counter was reset
		return change{after, after}
	}
	return change{after, after - before}
}

func (c change) plus(other change) change { return change{c.total + other.total, c.new + other.new} }

func (c change) String() string {
	return fmt.Sprintf("%s in all, %s while looking", wording.Count(c.total), wording.Count(c.new))
}

// severity returns moving if the counter has increased during the examination. Otherwise it returns Note, because no remedy can undo earlier counts,
// or OK if the counter is 0.
func (c change) severity(moving Severity) Severity {
	switch {
	case c.new > 0:
		return moving
	case c.total > 0:
		return Note
	}
	return OK
}
