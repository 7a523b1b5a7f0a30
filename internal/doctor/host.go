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

// host is what the probes look at. Tests put captured text in the place of files and tools.
type host struct {
	root     fs.FS            // of which proc, sys and etc are read
	instance control.Instance // the Floodwall of this host
	only     []string         // the devices that are asked for; none for all
	interval time.Duration    // between two readings of a counter
	start    time.Time
	eth      *features.Conn

	hasDaemonUnit func() bool // systemd has a unit of the daemon

	// tool runs a program that only reads, and returns its standard output.
	tool func(ctx context.Context, name string, args ...string) ([]byte, error)
	// devices and rules are read once for all probes.
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

// netFile names a file of /proc/net as the network namespace of the reading thread has it.
func netFile(name string) string { return strings.TrimPrefix(sockets.ProcFile(name), "/") }

// sysctlFile names the file of a kernel setting. Device names may have dots, so it takes the parts of the path.
func sysctlFile(parts ...string) string { return "proc/sys/" + strings.Join(parts, "/") }

// maxFile bounds what is read of one file, in bytes.
const maxFile = 4 << 20

// read returns a file's text, or its first maxFile bytes.
func (h *host) read(file string) (string, error) {
	f, err := h.root.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	return string(text), err
}

// number reads a file that holds one number.
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

// writable reports whether root could write a file here. Some settings of the machine are fixed outside of its first
// network namespace.
func (h *host) writable(file string) bool {
	info, err := fs.Stat(h.root, file)
	return err == nil && info.Mode().Perm()&0o200 != 0
}

// twice reads counters at the start and when the interval is over.
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

// change is a counter's value and how much of it came while the doctor looked.
type change struct{ total, new uint64 }

func changed(before, after uint64) change {
	if after < before { // it has been reset
		return change{after, after}
	}
	return change{after, after - before}
}

func (c change) plus(other change) change { return change{c.total + other.total, c.new + other.new} }

func (c change) String() string {
	return fmt.Sprintf("%s in all, %s while looking", wording.Count(c.total), wording.Count(c.new))
}

// severity is the given one when the counter moves, a note when it stands still: what has been is history, and no
// remedy makes it undone.
func (c change) severity(moving Severity) Severity {
	switch {
	case c.new > 0:
		return moving
	case c.total > 0:
		return Note
	}
	return OK
}
