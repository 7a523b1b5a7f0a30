// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// Handout gives internal/daemon/sample access to the packet samples of the running policy. The caller must call Open or Close, but not both.
type Handout struct {
	Program  ebpf.ProgramID // the ID of the XDP program, as in RunningPolicy
	Manifest *manifest.Manifest
	OneIn    map[uint32]uint32 // sampling rate of each rule that takes samples, by counter slot; nil for samples of all packets

	program *datapath.Generation
	traffic bool
}

// Handout opens the samples of the running policy. If traffic is true, the samples are of all packets. Handout returns datapath.ErrNoTraffic if the
// policy takes no such samples.
func (in Instance) Handout(ctx context.Context, traffic bool) (*Handout, error) {
	l, err := generation.Find(ctx, in.Dir)
	if err != nil {
		return nil, err
	}
	g := l.Generations[0]
	h := &Handout{Manifest: g.Manifest, program: g.Program, traffic: traffic}
	if h.Program, err = g.ProgramID(); err == nil {
		switch {
		case g.Program == nil && traffic:
			err = datapath.ErrNoTraffic
		case g.Program != nil && !traffic:
			h.OneIn, err = g.Program.Sampled()
		}
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	l.Generations = l.Generations[1:]
	l.Close()
	return h, nil
}

// Open starts reading the samples.
func (h *Handout) Open() (*datapath.Samples, error) {
	defer h.Close()
	if h.traffic {
		return h.program.Traffic()
	}
	return h.program.Samples()
}

// Close releases the program if Open is not called.
func (h *Handout) Close() error { (&generation.Generation{Program: h.program}).Close(); return nil }

// unreadFor is the longest normal age of an unread sample. The daemon reads ten times a second, and detects a new program within two seconds.
const unreadFor = 10 * time.Second

// Unread is the start of the warning that samples are not read.
const Unread = "samples of the traffic are not read"

// SamplesUnread returns the warning that the daemon does not read the traffic samples of the policy. It returns "" if the daemon reads them, if the
// policy takes no samples, or if no daemon runs.
func (in Instance) SamplesUnread(ctx context.Context) (warning string, err error) {
	running, err := in.RunningPolicy(ctx)
	if err != nil || running.Daemon.Sample == 0 || running.Program == 0 {
		return "", err
	}
	err = in.reading(ctx, func(l *generation.Live) error {
		warning, err = in.samplesUnread(l.Generations[0])
		return err
	})
	return warning, err
}

func (in Instance) samplesUnread(g *generation.Generation) (string, error) {
	if g.Program == nil || !in.HasDaemon() {
		return "", nil
	}
	waits, err := g.Program.Unread()
	if err != nil || waits < unreadFor {
		return "", err
	}
	return fmt.Sprintf("%s: the oldest waits for %s, so top, suggest, attacks and automatic rules see nothing of what comes: restart the daemon",
		Unread, wording.Span(waits)), nil
}
