package experiment

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// Flood is what an attacker sends to a web server, from random sources.
type Flood struct {
	name, label string
	flags       lab.TCPFlags
	options     []byte
	figure      string // what a defence does with it, as the unit of a result
}

// The floods: SYNs as Linux sends them, frames of 74 bytes, and ACKs with timestamps, of 66. Their numbers are random.
var (
	SYNs = &Flood{"syn", "SYN flood", lab.SYN, lab.SYNOptions, "SYN-ACKs/s"}
	ACKs = &Flood{"ack", "ACK flood", lab.ACK, []byte{1, 1, 8, 10, 0, 0, 16, 0, 0, 0, 32, 0}, "ACKs-dropped/s"}
)

// floodSources are where floods come from: random addresses, none of them a client's.
const floodSources = "128.0.0.0/2"

// Flow is the flood's packets to a server.
func (f *Flood) Flow(to netip.Addr, port uint16) lab.Flow {
	return rig.TCPFlood(lab.MustAddrs(floodSources), to, port, f.flags, f.options)
}

// floodBatch is how many packets the attacker sends at a time when there are answers, which share its CPU: in a
// batch of 256, a quarter of a millisecond at 1 Mpps, the queue that answers wait in overflows (kernel drivers/net/veth.c,
// VETH_RING_SIZE).
const floodBatch = 64

// source prepares a flood, of which the options say how it is sent.
func (s *synproxySite) source(f *Flood, o lab.SourceOptions) (*lab.Source, error) {
	o.Flows = []lab.Flow{f.Flow(s.web.Addr(), s.web.Port())}
	o.CPU = rig.SourceCPU
	return s.Lab.NewSource(s.Out, o)
}

// flooded is what became of a flood, in packets per second.
type flooded struct {
	taken     float64 // by the receive thread
	answered  float64 // with SYN-ACKs, or turned round by the program that is the limit
	refused   float64 // answered with resets
	ran       float64 // share of the time that the receive thread ran
	disturbed bool
}

// figure is what counts: of SYNs, how many were answered; of ACKs, how many were not.
func (f *flooded) figure(of *Flood) float64 {
	if of == SYNs {
		return f.answered
	}
	return max(0, f.taken-f.refused-f.answered)
}

// flood floods the site once, for the window, so many packets at a time; 0: the source's own number.
func (s *synproxySite) flood(ctx context.Context, f *Flood, pps float64, batch int, seed uint64, window time.Duration) (r flooded, err error) {
	source, err := s.source(f, lab.SourceOptions{
		Batch: batch, Rate: pps, CatchUp: rig.FloodCatchUp, Count: uint64(pps * window.Seconds()), Seed: seed, Urgent: true,
	})
	if err != nil {
		return r, err
	}
	before, err := s.returned()
	if err != nil {
		return r, errors.Join(err, source.Close())
	}
	m, err := lab.MeasureRun(ctx, source, s.In)
	after, looked := s.returned()
	if err := errors.Join(err, looked, source.Close()); err != nil {
		return r, err
	}
	perSecond := func(n uint64) float64 { return float64(n) / m.Time.Seconds() }
	r = flooded{taken: m.PPS, ran: m.Ran, disturbed: rig.Disturbed(m)}
	r.refused = perSecond(after.resets - before.resets)
	r.answered = perSecond(after.all()-before.all()) - r.refused
	return r, nil
}

// able is how many of these there would be if the receive thread ran all the time, in which it spends no less on each. The
// attacker shares its CPU with whom the answers arrive at, and may have less to send than the fastest can take.
func (f *flooded) able(of *Flood) float64 { return f.figure(of) / min(1, max(f.ran, 0.01)) }

// Climbing to the most that there is of a figure: beyond the best offer so far come greater ones, as long as one of them
// gives more by climbStep. The lab's source has no more than mostOffer.
const (
	climbStep = 1.03
	mostOffer = 12e6
)

// climb returns the most of a figure that take reports for any offer, given the most so far. A receiver takes less of a
// full flood than of one that is a little more than it can take: see rig.Rate.
func climb(best float64, factors []float64, take func(pps float64) (float64, error)) (float64, error) {
	for best > 0 {
		base := best
		for _, factor := range factors {
			figure, err := take(min(factor*base, mostOffer))
			if err != nil {
				return best, err
			}
			best = max(best, figure)
		}
		if best <= climbStep*base || slices.Max(factors)*base > mostOffer {
			break
		}
	}
	return best, nil
}
