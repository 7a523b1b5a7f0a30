// SPDX-License-Identifier: Apache-2.0

// This file makes the summaries that a node sends to its fleet. In: an instance with its samples and its attacks. Out: every ten seconds, the number
// of packets by verdict, the active attacks, and the sources that sent most packets.

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

// places is the number of sources that are counted at the same time. With this number no count is too high by more than 1/1024 of all samples.
const places = 1024

// first is the time until the first summary. It is short so that the fleet soon has data of a node that joins.
const first = 2 * time.Second

// leastService is the least share of an attack's samples that must have the same destination port. Otherwise the attack is not reported as aimed at
// one port.
const leastService = 0.5

// Run calls tell with a summary every ten seconds until ctx ends. There are no summaries while no policy runs. The host must have a Tap.
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

// look returns the counters and the time of the reading. The counters are nil while no policy runs.
func look(ctx context.Context, h operate.Host) (*control.Status, time.Time) {
	s, err := h.Decided(ctx)
	if err != nil {
		s = nil
	}
	return s, time.Now()
}

// count counts the samples of each source for the given time. It also returns how many packets a sample stands for, 0 when there are no samples.
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

// summary returns the number of packets by verdict between two readings of the counters.
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

// attacksOf returns the kinds of an attack, each with its share of the present rate. Only the kind with the largest share names the attacked service.
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

// service returns the destination port of most samples of an attack, or "" when no port has the share leastService.
func service(s *operate.Samples) string {
	if s == nil {
		return ""
	}
	if list := s.Fields[packet.DPort.String()]; len(list) > 0 && list[0].Share >= leastService {
		return list[0].Key
	}
	return ""
}

// addTalkers adds to the summary the sources that sent most packets. A sample stands for oneIn packets.
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
