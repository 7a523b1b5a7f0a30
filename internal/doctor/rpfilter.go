// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// reversePath examines for each device how packets are handled whose sender is not reachable through this device.
func reversePath(_ context.Context, h *host) []Finding {
	all, err := h.number(sysctlFile("net", "ipv4", "conf", "all", "rp_filter"))
	if err != nil {
		return []Finding{unseen("rp-filter", err)}
	}
	table, err := h.read(netFile("route"))
	if err != nil {
		return []Finding{unseen("rp-filter", err)}
	}
	ways := defaultRoutes(table)
	return eachDevice(h, "rp-filter", func(d *device) []Finding {
		own, err := h.number(sysctlFile("net", "ipv4", "conf", d.name, "rp_filter"))
		if err != nil {
			return []Finding{unseen("rp-filter", err)}
		}
		return []Finding{d.reversePath(all, own, ways)}
	})
}

// The values of rp_filter. The kernel uses the larger of the device's value and the value of `all` (IN_DEV_RPFILTER in include/linux/inetdevice.h).
const (
	rpOff = iota
	rpStrict
	rpLoose
)

func (d *device) reversePath(all, own uint64, ways []string) Finding {
	value := max(all, own)
	f := Finding{
		ID:       "rp-filter",
		Evidence: fmt.Sprintf("net.ipv4.conf.%s.rp_filter is %d and net.ipv4.conf.all.rp_filter is %d: the larger one, %d, holds (/proc/sys)", d.name, own, all, value),
		Numbers:  map[string]uint64{"all": all, "device": own},
	}
	loose := fmt.Sprintf("sysctl -w net/ipv4/conf/%s/rp_filter=%d", wording.Shell(d.name), rpLoose)
	switch {
	case value == rpOff:
		f.Severity = Note
		f.Cost = "packets with senders that no route leads to get as far as the stack; Floodwall's own checks drop those that cannot exist"
		return f.command(loose)
	case value == rpStrict && len(ways) > 1:
		f.Severity = Warning
		f.Evidence += fmt.Sprintf("; default routes by %d devices (/proc/net/route)", len(ways))
		f.Cost = "asymmetric routing: packets are dropped when the way back to their sender is another device"
		return f.command(loose)
	}
	return f.healthy()
}

// asymmetric returns a finding about packets that the kernel drops because of their source address.
func asymmetric(before, after map[string]uint64) Finding {
	c := changed(before["IPReversePathFilter"], after["IPReversePathFilter"])
	f := Finding{
		ID: "rp-filter-drops", Severity: c.severity(Warning),
		Evidence: fmt.Sprintf("packets dropped by rp_filter: %s (IPReversePathFilter, /proc/net/netstat)", c),
		Numbers:  map[string]uint64{"dropped": c.total, "new": c.new},
		Cost:     "forged senders, or honest ones whose way back is another device",
	}
	if c.total == 0 {
		return f.healthy()
	}
	return f.advice("where routing is asymmetric: `sysctl -w net.ipv4.conf.all.rp_filter=2`; forged senders are cheaper to drop in XDP: `checks: strict`")
}
