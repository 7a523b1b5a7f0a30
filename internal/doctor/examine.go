// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/features"
)

// Options select the subjects of an examination.
type Options struct {
	Instance control.Instance // the instance whose state is reported
	Devices  []string         // report only findings about these devices, and findings about no device; nil: all findings

	interval time.Duration // the time between two readings of a counter; 0: a second
}

// Deadline is the longest time that a probe may take. Examine does not wait for a slower probe, and reports it as a finding.
const Deadline = 3 * time.Second

// probe examines one subject.
type probe struct {
	id   string // the ID of the probe's first finding, or the prefix of the IDs of all its findings
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

// Examine examines everything that may delay or lose packets on this host, in the network namespace of the calling process. It returns the findings
// in a fixed order. It returns an error if Options name a device that cannot be examined.
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
	if ctx.Err() == nil { // otherwise a probe that has not ended may still use it
		eth.Close()
	}
	return found, nil
}

// run runs all probes at the same time. It returns their findings in the order of the probes.
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

// late returns the findings of a probe that ends just at the deadline. Otherwise it returns a finding that the probe took too long.
func late(p probe, found chan []Finding) []Finding {
	select {
	case f := <-found:
		return f
	case <-time.After(50 * time.Millisecond): // time for a probe that checks the context to end
	}
	select {
	case f := <-found: // select takes any of the cases if a busy machine has let both come true
		return f
	default:
		return []Finding{unseen(p.id, fmt.Errorf("it took longer than %v", Deadline))}
	}
}
