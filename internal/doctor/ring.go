// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// deviceCounts are the counters of one device.
type deviceCounts struct {
	dropped uint64            // packets dropped after the driver, from the kernel's statistics
	ring    map[string]uint64 // the driver's counters of frames that found no free buffer, by name
}

// noBuffer matches drivers' names of counters for frames that found no free buffer in a ring. Examples are rx_no_buffer_count (igb, ixgbe),
// rx_out_of_buffer and rx_discards_phy (mlx5), rx_missed_errors, rx_queue_0_drops (virtio, veth) and rx_fifo_errors. bw_in_allowance_exceeded and
// pps_allowance_exceeded (ena) count frames that the cloud dropped.
var noBuffer = wording.Regexp(`(?i)^(rx.*(no_?(dma_)?buf|out_of_buf|discard|missed|fifo|overrun|drop)|.*_allowance_exceeded)`)

// ringDrops finds frames that were lost before the kernel processed them.
func ringDrops(ctx context.Context, h *host) []Finding {
	devices, err := h.devices()
	if err != nil {
		return []Finding{unseen("ring-drops", err)}
	}
	before, after, err := twice(ctx, h, func() (map[string]deviceCounts, error) { return readCounts(h, devices) })
	if err != nil {
		return []Finding{unseen("ring-drops", err)}
	}
	return eachDevice(h, "ring-drops", func(d *device) []Finding {
		return []Finding{d.ringDrops(before[d.name].ring, after[d.name].ring), d.drops(before[d.name], after[d.name])}
	})
}

func readCounts(h *host, devices []*device) (map[string]deviceCounts, error) {
	all := map[string]deviceCounts{}
	for _, d := range devices {
		l, err := netlink.LinkByIndex(d.index)
		if err != nil {
			return nil, fmt.Errorf("counters of device %s: %w", d.name, err)
		}
		// Some drivers have no counters of their own.
		own, _ := h.eth.Stats(d.name)
		all[d.name] = newCounts(l.Attrs().Statistics, own)
	}
	return all, nil
}

// newCounts selects the relevant counters of the kernel and of the driver. For ring drops it prefers the driver's counters, because the kernel's
// counters are sums of them.
func newCounts(s *netlink.LinkStatistics, own map[string]uint64) deviceCounts {
	c := deviceCounts{ring: map[string]uint64{}}
	for name, value := range own {
		if noBuffer().MatchString(name) && !strings.Contains(name, "xdp") {
			c.ring[name] = value
		}
	}
	if s == nil {
		return c
	}
	c.dropped = s.RxDropped
	if len(c.ring) == 0 {
		c.ring = map[string]uint64{"rx_missed_errors": s.RxMissedErrors, "rx_fifo_errors": s.RxFifoErrors, "rx_over_errors": s.RxOverErrors}
	}
	return c
}

func (d *device) ringDrops(before, after map[string]uint64) Finding {
	f := Finding{ID: "ring-drops", Numbers: map[string]uint64{}, Cost: "these frames were lost before any rule or XDP program could look at them"}
	var sum change
	var words []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		c := changed(before[name], after[name])
		if c.total > 0 {
			words = append(words, name+" "+wording.Count(c.total))
			f.Numbers[name] = c.total
		}
		sum = sum.plus(c)
	}
	f.Evidence = fmt.Sprintf("frames that found no space in the ring: %s", sum)
	if len(words) > 0 {
		f.Evidence += " (" + strings.Join(words, ", ") + ", from ethtool -S)"
	}
	if r := d.rings; r != nil {
		f.Evidence += fmt.Sprintf("; the ring has %d of %d places", r.Size, r.Max)
		f.Numbers["ring"], f.Numbers["ring_max"] = uint64(r.Size), uint64(r.Max)
	}
	f.Severity = sum.severity(Problem)
	switch r := d.rings; {
	case f.Severity == OK:
		return f.healthy()
	case r != nil && r.Size < r.Max:
		return f.command(fmt.Sprintf("ethtool -G %s rx %d", wording.Shell(d.name), r.Max))
	}
	return f.advice("let more CPUs receive (see queues), and make each packet cheaper (see rules-path, conntrack-services, xdp-native)")
}

// drops returns a finding about packets that were dropped between the driver and netfilter. Some drivers include packets that XDP programs dropped in
// this counter.
func (d *device) drops(before, after deviceCounts) Finding {
	c := changed(before.dropped, after.dropped)
	f := Finding{
		ID: "device-drops", Severity: c.severity(Note),
		Evidence: fmt.Sprintf("packets dropped on the way from the driver to netfilter: %s (rx_dropped, from the kernel's list of devices)", c),
		Numbers:  map[string]uint64{"rx_dropped": c.total, "new": c.new},
		Cost:     "mostly frames of protocols that nobody here speaks; some drivers count here what XDP programs drop",
	}
	if c.total == 0 {
		return f.healthy()
	}
	return f.advice("`perf trace -e skb:kfree_skb` or `dropwatch` names the place in the kernel")
}
