// This file makes the summaries that a node sends its fleet. In: an instance with its samples and its attacks. Out: every ten seconds what
// was decided, which attacks go on, and the sources that sent most.

package daemon

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/attack"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/fleet/wire"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/os/periodic"
)

// places is how many sources are counted at a time: no count is more than 1/1024 of all samples too high.
const places = 1024

// first is the time of the first summary, so that a node which joins is seen soon.
const first = 2 * time.Second

// leastService is the share of an attack's samples that go to one port when it is aimed at that port.
const leastService = 0.5

// Run tells a summary every ten seconds until ctx ends. While no policy runs there is none. The host must have a Tap.
func Run(ctx context.Context, h operate.Host, attacks *attack.Watcher, tell func(*wire.Summary)) {
	f := h.Tap.Follow()
	defer f.Close()
	before, at := look(ctx, h)
	for length := first; ; length = wire.Every {
		sources, oneIn := count(ctx, f, length)
		after, now := look(ctx, h)
		if ctx.Err() != nil {
			return
		}
		if before != nil && after != nil {
			s := summary(before, after, now.Sub(at))
			s.Attacks = attacksOf(attacks.Current(), s)
			addTalkers(s, sources, oneIn)
			tell(s)
		}
		before, at = after, now
	}
}

// look reads the counters. They are nil while no policy runs.
func look(ctx context.Context, h operate.Host) (*control.Status, time.Time) {
	s, err := h.Decided(ctx)
	if err != nil {
		s = nil
	}
	return s, time.Now()
}

// count counts the sources of the samples of some seconds, of which one stands for about so many packets; 0 when there are none.
func count(ctx context.Context, f *sample.Follower, length time.Duration) (sources *sample.Counter[netip.Prefix], oneIn uint32) {
	ctx, cancel := context.WithTimeout(ctx, periodic.Left(length))
	defer cancel()
	sources = sample.NewCounter[netip.Prefix](places)
	for stands, n := 0.0, 0.0; ; n++ {
		s, err := f.Read(ctx)
		if err != nil {
			return sources, uint32(stands/max(1, n) + 0.5)
		}
		stands += s.Stands
		if p := packet.Decode(s.Frame); p.Kind == packet.IP {
			sources.Add(wire.SourcePrefix(p.Src))
		}
	}
}

// summary is what was decided between two readings.
func summary(before, after *control.Status, length time.Duration) *wire.Summary {
	s := &wire.Summary{Span: max(length.Round(time.Millisecond), time.Second)}
	list, _, _ := operate.Increases(before, after)
	for _, r := range list {
		if r.Observe || r.Beside {
			continue
		}
		at := slices.Index(wire.Verdicts[:], r.Verdict)
		if at < 0 {
			at = slices.Index(wire.Verdicts[:], "drop")
		}
		s.Decided[at].Packets += r.Packets
		s.Decided[at].Bytes += r.Bytes
	}
	return s
}

// attacksOf are the kinds of an attack, each with its share of the present rate. The kind that is most of it has the service.
func attacksOf(r *attack.Report, s *wire.Summary) (list []wire.Attack) {
	if r == nil {
		return nil
	}
	packets := uint64(0)
	for _, a := range s.Decided {
		packets += a.Packets
	}
	rate := float64(packets) / s.Span.Seconds()
	started := r.Started.UnixMilli()
	if len(r.Vectors) == 0 {
		return []wire.Attack{{Kind: "of unknown kind", Started: started, Packets: uint64(rate)}}
	}
	for i, v := range r.Vectors[:min(len(r.Vectors), wire.MaxAttacks)] {
		a := wire.Attack{Kind: v.Name, Started: started, Packets: uint64(v.Share * rate)}
		if i == 0 {
			a.Service = service(r.Samples)
		}
		list = append(list, a)
	}
	return list
}

// service is the port that most samples of an attack go to; "": there is no such port.
func service(s *operate.Samples) string {
	if s == nil {
		return ""
	}
	if list := s.Fields[packet.DPort.String()]; len(list) > 0 && list[0].Share >= leastService {
		return list[0].Key
	}
	return ""
}

// addTalkers adds the sources that sent most. A sample stands for one in so many packets.
func addTalkers(s *wire.Summary, sources *sample.Counter[netip.Prefix], oneIn uint32) {
	if oneIn == 0 {
		return
	}
	s.OneIn = oneIn
	list := sources.Top(wire.MaxTalkers + 1)
	if len(list) > wire.MaxTalkers {
		s.Missed = list[wire.MaxTalkers].Packets * uint64(oneIn)
		list = list[:wire.MaxTalkers]
	}
	for _, c := range list {
		s.Talkers = append(s.Talkers, wire.Talker{Prefix: c.Key, Packets: c.Packets * uint64(oneIn), Error: c.Over * uint64(oneIn)})
	}
}
