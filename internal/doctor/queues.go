// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// offloads examines the offloads of the devices. Offloads change packets before any program sees them.
func offloads(_ context.Context, h *host) []Finding {
	return eachDevice(h, "gro", func(d *device) []Finding {
		gro, is := d.features["rx-gro"]
		f := Finding{
			ID: "gro", Severity: Note, Evidence: "generic receive offload is off (rx-gro, from ethtool)",
			Cost: "each segment of a TCP stream goes through netfilter and the stack alone, instead of up to 64 kB at once",
		}
		if !is || gro.On || gro.Fixed {
			f.Evidence = "generic receive offload is on or has no meaning here (rx-gro, from ethtool)"
			return []Finding{f.healthy()}
		}
		return []Finding{f.command("ethtool -K " + wording.Shell(d.name) + " gro on")}
	})
}

// queues examines whether several CPUs share the work of receiving.
func queues(_ context.Context, h *host) []Finding {
	text, err := h.read(netFile("softnet_stat"))
	if err != nil {
		return []Finding{unseen("queues", err)}
	}
	cpus := uint32(strings.Count(text, "\n")) // one row for each online CPU
	return eachDevice(h, "queues", func(d *device) []Finding {
		if d.channels == nil {
			return nil
		}
		found := []Finding{d.spread(cpus, steered(h, d))}
		if d.driver == "virtio_net" {
			found = append(found, d.transmitQueues(cpus))
		}
		return found
	})
}

// spread returns a finding about the number of receive queues. steering says that the kernel passes packets on to other CPUs.
func (d *device) spread(cpus uint32, steering bool) Finding {
	c := d.channels
	have, most := c.RX+c.Combined, c.MaxRX+c.MaxCombined
	f := Finding{
		ID: "queues", Severity: Warning,
		Evidence: fmt.Sprintf("%d of %d receive queues in use, for %d CPUs (from ethtool)", have, most, cpus),
		Numbers:  map[string]uint64{"queues": uint64(have), "max": uint64(most), "cpus": uint64(cpus)},
		Cost:     fmt.Sprintf("at most %d of %d CPUs receive from this device", have, cpus),
	}
	kind, n := "combined", min(c.MaxCombined, cpus)
	if c.MaxCombined == 0 {
		kind, n = "rx", min(c.MaxRX, cpus)
	}
	if d.kind != "device" { // for a virtual device the sender chooses the CPU
		f.Severity = Note
	}
	switch {
	case have >= cpus || steering:
		return f.healthy()
	case have < min(most, cpus):
		return f.command(fmt.Sprintf("ethtool -L %s %s %d", wording.Shell(d.name), kind, n))
	}
	f.Severity = Note // the device has no more queues
	mask := fmt.Sprintf("%x", uint64(1)<<min(cpus, 32)-1)
	return f.command(fmt.Sprintf("for f in /sys/class/net/%s/queues/rx-*/rps_cpus; do echo %s > $f; done", wording.Shell(d.name), mask))
}

// transmitQueues returns a finding about a virtio device's queues for sending from XDP. XDP needs one queue for each CPU, in addition to the queues
// in use.
func (d *device) transmitQueues(cpus uint32) Finding {
	c := d.channels
	f := Finding{
		ID: "xdp-transmit", Severity: Note,
		Evidence: fmt.Sprintf("%d queues in use of %d, and XDP wants %d more (from ethtool)", c.Combined, c.MaxCombined, cpus),
		Numbers:  map[string]uint64{"queues": uint64(c.Combined), "max": uint64(c.MaxCombined), "cpus": uint64(cpus)},
		Cost:     "answers from XDP (SYN protection) share queues under a lock; dropping is not touched",
	}
	if c.Combined+cpus <= c.MaxCombined {
		return f.healthy()
	}
	return f.advice(fmt.Sprintf("have the hypervisor give the device %d queues", c.Combined+cpus))
}

// steered reports whether receive packet steering is on. It returns false if /sys belongs to another network namespace, in which the index of the
// device differs.
func steered(h *host, d *device) bool {
	dir := "sys/class/net/" + d.name + "/"
	if index, err := h.number(dir + "ifindex"); err != nil || index != uint64(d.index) {
		return false
	}
	mask, err := h.read(dir + "queues/rx-0/rps_cpus")
	return err == nil && strings.Trim(mask, "0,\n") != ""
}
