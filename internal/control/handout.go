package control

import (
	"context"

	"github.com/floodwall/floodwall/internal/datapath"
	"github.com/floodwall/floodwall/internal/manifest"
)

// Handout gives internal/captured the samples of packets of the policy that runs. One of its Open and Close must be called.
type Handout struct {
	Generation int
	Manifest   *manifest.Manifest
	OneIn      map[uint32]uint32 // by the slots of rules that hand out samples; nil for samples of all packets

	program *datapath.Generation
	traffic bool
}

// Handout is nil when the known generation runs; 0 is none. Without samples of all packets, traffic returns datapath.ErrNoTraffic.
func (in Instance) Handout(ctx context.Context, traffic bool, known int) (*Handout, error) {
	l, err := in.open(ctx)
	if err != nil {
		return nil, err
	}
	g := l.generations[0]
	h := &Handout{Generation: g.number, Manifest: g.manifest, program: g.program, traffic: traffic}
	switch {
	case g.number == known:
		h = nil
	case g.program == nil && traffic:
		err = datapath.ErrNoTraffic
	case g.program != nil && !traffic:
		h.OneIn, err = g.program.Sampled()
	}
	if h == nil || err != nil {
		l.close()
		return nil, err
	}
	l.generations = l.generations[1:]
	l.close()
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
func (h *Handout) Close() error { (&generation{program: h.program}).close(); return nil }
