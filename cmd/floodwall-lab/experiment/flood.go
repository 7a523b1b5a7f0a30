package experiment

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

// Flood is a flood that an attacker sends to a web server from random sources.
type Flood struct {
	name, label string
	flags       lab.TCPFlags
	options     []byte
	figure      string // the unit of the figure that measures a defence

	limit        string  // the name of the guard that is the limit
	share, times float64 // Floodwall's goals: a share of the limit, and a multiple of the rival's rate
}

// The two floods. SYNs are as Linux sends them, in frames of 74 bytes. ACKs have timestamps, in frames of 66 bytes. The sequence numbers are random.
var (
	SYNs = &Flood{"syn", "SYN flood", lab.SYN, lab.SYNOptions, "SYN-ACKs/s", limitTX, 0.60, 8}
	ACKs = &Flood{"ack", "ACK flood", lab.ACK, []byte{1, 1, 8, 10, 0, 0, 16, 0, 0, 0, 32, 0}, "ACKs-dropped/s", limitDrop, 0.75, 7}
)

// tcpFloods are both floods, in the order of the tables.
var tcpFloods = []*Flood{SYNs, ACKs}

// floodSources are the sources of floods. They are random addresses, and none of them is a client's.
const floodSources = "128.0.0.0/2"

// Flow returns the flow of the flood to a server.
func (f *Flood) Flow(to netip.Addr, port uint16) lab.Flow {
	return rig.TCPFlood(lab.MustAddrs(floodSources), to, port, f.flags, f.options)
}

// floodBatch is the number of packets that the attacker sends in a batch if answers arrive on its CPU. A batch of 256 packets takes a quarter of a
// millisecond at 1 Mpps. In this time, the queue of the answers would overflow (kernel drivers/net/veth.c, VETH_RING_SIZE).
const floodBatch = 64

// source prepares a flood. The options define how it is sent.
func (s *synproxySite) source(f *Flood, o lab.SourceOptions) (*lab.Source, error) {
	o.Flows = []lab.Flow{f.Flow(s.web.Addr(), s.web.Port())}
	o.CPU = rig.SourceCPU
	return s.Lab.NewSource(s.Out, o)
}

// flooded has the effect of a flood, in packets per second.
type flooded struct {
	taken     float64 // packets that the receive thread handled
	answered  float64 // packets that were answered with SYN-ACKs, or that the limit's program sent back
	refused   float64 // packets that were answered with resets
	ran       float64 // share of the time that the receive thread ran
	disturbed bool
}

// figure returns the rate that counts for a flood: the answered SYNs, or the ACKs without an answer.
func (f *flooded) figure(of *Flood) float64 {
	if of == SYNs {
		return f.answered
	}
	return max(0, f.taken-f.refused-f.answered)
}

// flood sends one flood to the site for the time window. The parameter batch is the number of packets that are sent at a time; 0: the source's
// default.
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

// able returns the figure that would result if the receive thread ran all the time, with the same cost per packet. The attacker shares its CPU with
// the receiver of the answers. So it may send fewer packets than the fastest defence can handle.
func (f *flooded) able(of *Flood) float64 { return f.figure(of) / min(1, max(f.ran, 0.01)) }

// climb searches for the highest figure by raising the offered rate. It continues as long as a higher rate raises the figure by the factor climbStep.
// mostOffer is the highest rate that the lab's source can send.
const (
	climbStep = 1.03
	mostOffer = 12e6
)

// climb returns the highest figure that the function take reports for any offered rate. The parameter best is the highest figure so far. A receiver
// may handle fewer packets of a full flood than of a flood that is slightly above its capacity: see rig.Rate.
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

// idleShare is a share of the time. If the receive thread is idle for more than this share, the source limits the figure.
const idleShare = 0.05

// most measures one round with a flood: all rates of the curve, and the highest figure at any rate. The parameter resets is true if ACKs are answered
// with resets.
func (s *synproxySite) most(ctx context.Context, session *rig.Session, f *Flood, resets bool, seed uint64) (rig.Reading, error) {
	var best flooded
	read := rig.Reading{}
	take := func(pps float64) (float64, error) {
		r, err := s.floodOnce(ctx, session, f, resets, pps, seed)
		figure := r.figure(f)
		if figure > best.figure(f) {
			best = r
		}
		return figure, err
	}
	for _, pps := range floodRates(session) {
		figure, err := take(pps)
		if err != nil {
			return nil, err
		}
		read[rateUnit(pps)] = figure
	}
	_, err := climb(best.figure(f), report.Choice(session.Quick, []float64{1.2, 2}, []float64{1.1, 1.3, 1.6, 2.2}), take)
	read["Mpps"], read[able] = best.figure(f)/1e6, best.able(f)/1e6
	read["disturbed"] = report.Choice[float64](best.disturbed, 1, 0)
	read["starved"] = report.Choice[float64](!best.disturbed && best.ran < 1-idleShare, 1, 0)
	return read, err
}

// floodOnce makes a measurement, and repeats it if it was disturbed. If all measurements were disturbed, it returns the one in which most packets
// arrived.
func (s *synproxySite) floodOnce(ctx context.Context, session *rig.Session, f *Flood, resets bool, pps float64, seed uint64) (best flooded, err error) {
	batch := 0 // the source's default, which is faster
	if f == SYNs || resets {
		batch = floodBatch
	}
	for range session.Tries() {
		r, err := s.flood(ctx, f, pps, batch, seed, session.Window)
		if err != nil || !r.disturbed {
			return r, err
		}
		if r.taken >= best.taken {
			best = r
		}
	}
	return best, nil
}
