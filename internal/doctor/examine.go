package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/features"
)

// Options say what to look at.
type Options struct {
	Instance control.Instance // whose state is reported
	Devices  []string         // only findings about these devices, and those about no device; none for all

	interval time.Duration // between two readings of a counter, 0 for a second
}

// Deadline is how long a probe may take. One that takes longer is left alone, and a finding says so.
const Deadline = 3 * time.Second

// probe looks at one thing.
type probe struct {
	id   string // of its first finding, or how all of them begin
	look func(context.Context, *host) []Finding
}

var probes = []probe{
	{"floodwall", self},
	{"conntrack-table", conntrackTable},
	{"conntrack-drops", conntrackLosses},
	{"conntrack-services", conntrackServices},
	{"conntrack-timeouts", conntrackTimeouts},
	{"conntrack-loose", conntrackLoose},
	{"synproxy-options", synproxyOptions},
	{"rules", linearRules},
	{"notrack-one-way", savedRules},
	{"synproxy-announces", synproxyAnnounces},
	{"xdp-native", xdpSupport},
	{"xdp-mtu", frameSize},
	{"gro", offloads},
	{"queues", queues},
	{"queue-irqs", queueIRQs},
	{"ring-drops", ringDrops},
	{"softnet-drops", softnet},
	{"listen-drops", listenQueues},
	{"tcp-syncookies", tcpSettings},
	{"rp-filter", reversePath},
	{"manager", managers},
	{"tc-programs", foreignPrograms},
}

// Examine looks at all that costs packets on this host, in the network namespace of the calling process, and returns the
// findings in an order that is always the same. The error is about the device that Options name.
func Examine(ctx context.Context, o Options) ([]Finding, error) {
	eth, err := features.Open()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, Deadline)
	defer cancel()
	h := newHost(ctx, o, eth)
	if len(o.Devices) > 0 {
		if _, err := h.devices(); err != nil {
			return nil, err
		}
	}
	found := run(ctx, h, probes)
	if ctx.Err() == nil { // else a probe that was left alone may still use it
		eth.Close()
	}
	return found, nil
}

// run runs all probes at once and joins what they find, in their order.
func run(ctx context.Context, h *host, probes []probe) (all []Finding) {
	found := make([]chan []Finding, len(probes))
	for i, p := range probes {
		found[i] = make(chan []Finding, 1)
		go func() { found[i] <- p.look(ctx, h) }()
	}
	for i, p := range probes {
		select {
		case f := <-found[i]:
			all = append(all, f...)
		case <-ctx.Done():
			all = append(all, late(p, found[i])...)
		}
	}
	return all
}

// late is what a probe found in the moment of the deadline, or that it found nothing.
func late(p probe, found chan []Finding) []Finding {
	select {
	case f := <-found:
		return f
	case <-time.After(50 * time.Millisecond): // a probe that looks at the context ends now
		return []Finding{unseen(p.id, fmt.Errorf("it took longer than %v", Deadline))}
	}
}
