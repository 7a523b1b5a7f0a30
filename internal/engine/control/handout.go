package control

import (
	"context"

	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// Handout gives internal/daemon/sample the samples of packets of the policy that runs. One of its Open and Close must be called.
type Handout struct {
	Generation int
	Manifest   *manifest.Manifest
	OneIn      map[uint32]uint32 // by the slots of rules that hand out samples; nil for samples of all packets

	program *datapath.Generation
	traffic bool
}

// Handout is nil when the known generation runs; 0 is none. Without samples of all packets, traffic returns datapath.ErrNoTraffic.
func (in Instance) Handout(ctx context.Context, traffic bool, known int) (*Handout, error) {
	l, err := generation.Find(ctx, in.Dir)
	if err != nil {
		return nil, err
	}
	g := l.Generations[0]
	h := &Handout{Generation: g.Number, Manifest: g.Manifest, program: g.Program, traffic: traffic}
	switch {
	case g.Number == known:
		h = nil
	case g.Program == nil && traffic:
		err = datapath.ErrNoTraffic
	case g.Program != nil && !traffic:
		h.OneIn, err = g.Program.Sampled()
	}
	if h == nil || err != nil {
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
