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

// Handout gives internal/daemon/sample the samples of packets of the policy that runs. One of its Open and Close must be called.
type Handout struct {
	Program  ebpf.ProgramID // of RunningPolicy
	Manifest *manifest.Manifest
	OneIn    map[uint32]uint32 // by the slots of rules that hand out samples; nil for samples of all packets

	program *datapath.Generation
	traffic bool
}

// Handout is nil when the known program runs; 0 is none. The number of a generation would not tell: it may come again, and a set that is
// exchanged or a temporary rule gives the same generation another program. Without samples of all packets, traffic returns
// datapath.ErrNoTraffic.
func (in Instance) Handout(ctx context.Context, traffic bool, known ebpf.ProgramID) (*Handout, error) {
	if known != 0 {
		running, err := in.RunningPolicy(ctx) // the daemon has the answer, mostly
		if err != nil || running.Program == known {
			return nil, err
		}
	}
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

// Open begins to read the samples.
func (h *Handout) Open() (*datapath.Samples, error) {
	defer h.Close()
	if h.traffic {
		return h.program.Traffic()
	}
	return h.program.Samples()
}

// Close ends the use of what was found.
func (h *Handout) Close() error { (&generation.Generation{Program: h.program}).Close(); return nil }

// unreadFor is how long a sample of the traffic may wait: the daemon looks ten times a second, and follows another program within two seconds.
const unreadFor = 10 * time.Second

// Unread begins the warning that samples do not arrive.
const Unread = "samples of the traffic are not read"

// SamplesUnread is the warning that the daemon does not get the samples of the traffic that the policy has taken; "" while it does, while none
// are taken, and while no daemon runs.
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
	if g.Program == nil || !in.hasDaemon() {
		return "", nil
	}
	waits, err := g.Program.Unread()
	if err != nil || waits < unreadFor {
		return "", err
	}
	return fmt.Sprintf("%s: the oldest waits for %s, so top, suggest, attacks and automatic rules see nothing of what comes: restart the daemon",
		Unread, wording.Span(waits)), nil
}
