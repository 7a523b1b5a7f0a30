// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"strings"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// The metrics of the running policy. Dashboards rely on their names and labels.
var (
	packets = NewCounter("floodwall_packets_total",
		"Packets that were decided, by verdict. The kernel counts several devices together: then device is all.", "device", "verdict")
	rulePackets = NewCounter("floodwall_rule_packets_total",
		"Packets that a rule decided. The verdict of a rule that only counts is observe.", "rule", "stage", "verdict")
	ruleBytes = NewCounter("floodwall_rule_bytes_total",
		"Bytes of the frames that a rule decided.", "rule", "stage", "verdict")
	checkPackets = NewCounter("floodwall_check_packets_total",
		"Packets that a check dropped, or would drop where it only counts.", "check")
	setEntries  = NewGauge("floodwall_set_entries", "Entries of a set.", "set")
	setCapacity = NewGauge("floodwall_set_capacity", "Entries that a set can have.", "set")
	prefixes    = NewGauge("floodwall_limit_prefixes", "Prefixes of which the table of a limit knows that they have sent.", "limit")
	space       = NewGauge("floodwall_limit_room", "Prefixes that the table of a limit has space for.", "limit")
	evictions   = NewCounter("floodwall_limit_evictions_total", "Prefixes that a limit forgot for lack of space.", "limit")
	cookies     = NewCounter("floodwall_syn_cookies_total",
		"Packets of a protected service by what its SYN protection did with them.", "service", "event")
	active     = NewGauge("floodwall_protection_active", "1 while SYNs to a service are answered with cookies.", "service")
	flows      = NewGauge("floodwall_reply_flows", "Flows that began inside, whose replies pass.")
	flowSpace  = NewGauge("floodwall_reply_flows_capacity", "Flows that the table has space for.")
	displaced  = NewCounter("floodwall_reply_flows_displaced_total", "Flows that were forgotten, or not noted, for lack of space.")
	udpFlood   = NewGauge("floodwall_udp_flood", "1 while a protected UDP service drops what exceeds its limits.", "service")
	udpClients = NewGauge("floodwall_udp_clients", "Clients of protected UDP services, known and new.", "state")
	deviceMode = NewGauge("floodwall_device_mode", "1 for the mode in which the program runs on a device, 0 for the others.", "device", "mode")
	modeSince  = NewGauge("floodwall_device_mode_timestamp_seconds", "When a device got the mode in which its program runs.", "device")
	generation = NewGauge("floodwall_policy_generation", "Number of the policy that runs, 0 when none does.")
	inForce    = NewGauge("floodwall_policy_in_force", "1 while the kernel has the whole policy, 0 while a part is missing or nothing runs.")
)

// Running returns the metrics of the running policy. The function status reads the policy's status.
func Running(status func(context.Context) (*control.Status, error)) Part {
	return Part{
		Families: []*Family{packets, rulePackets, ruleBytes, checkPackets, setEntries, setCapacity, prefixes, space, evictions, cookies,
			active, flows, flowSpace, displaced, udpFlood, udpClients, deviceMode, modeSince, generation, inForce},
		Read: func(ctx context.Context, add Add) error {
			s, err := status(ctx)
			if errors.Is(err, datapath.ErrNotLoaded) {
				add(generation, 0)
				add(inForce, 0)
				return nil
			}
			if err != nil {
				return err
			}
			addRules(s, add)
			addTables(s, add)
			if r := s.ReplyFlows; r != nil {
				add(flows, float64(r.Flows))
				add(flowSpace, float64(r.Capacity))
				add(displaced, float64(r.Displaced+r.Refused))
			}
			addUDP(s.UDP, add)
			addModes(s.Devices, add)
			add(generation, float64(s.Generation))
			add(inForce, truth(len(s.Open) == 0))
			return nil
		},
	}
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// observed is the verdict label of rules that only count.
const observed = "observe"

func addRules(s *control.Status, add Add) {
	device := "all"
	if len(s.Devices) == 1 {
		device = s.Devices[0].Name
	}
	services := map[string]bool{}
	for _, p := range s.Protections {
		services[p.Service] = true
	}
	for _, verdict := range []string{"pass", "drop"} {
		add(packets, 0, device, verdict) // makes the series exist before its first packet: otherwise Prometheus could compute no rate of the first packets
	}
	for _, r := range append(s.Rules[:len(s.Rules):len(s.Rules)], s.Default, s.NotIP) {
		verdict := r.Verdict
		if r.Observe {
			verdict = observed
		}
		if !r.Beside && !r.Observe {
			add(packets, float64(r.Packets), device, verdict)
		}
		if service, event, ok := strings.Cut(r.Name, ":"); ok && r.Beside && services[service] {
			add(cookies, float64(r.Packets), service, event)
			continue
		}
		add(rulePackets, float64(r.Packets), r.Name, string(r.Stage), verdict)
		add(ruleBytes, float64(r.Bytes), r.Name, string(r.Stage), verdict)
	}
	for _, c := range s.Checks {
		add(checkPackets, float64(c.Packets), c.Name)
		if !c.Observe {
			add(packets, float64(c.Packets), device, c.Verdict)
		}
	}
}

func addUDP(u *control.UDPStatus, add Add) {
	if u == nil {
		return
	}
	for _, s := range u.Services {
		add(udpFlood, truth(s.Flood), s.Service)
	}
	add(udpClients, float64(u.Known), "known")
	add(udpClients, float64(u.New), "new")
}

func addModes(devices []control.DeviceStatus, add Add) {
	for _, d := range devices {
		if d.Since == nil { // the policy runs in netfilter, which has no modes
			continue
		}
		for _, mode := range []datapath.Mode{datapath.Native, datapath.Generic, datapath.TC} {
			add(deviceMode, truth(d.Mode == string(mode)), d.Name, string(mode))
		}
		add(modeSince, float64(d.Since.UnixMilli())/1000, d.Name)
	}
}

func addTables(s *control.Status, add Add) {
	for _, set := range s.Sets {
		add(setEntries, float64(set.Entries), set.Name)
		add(setCapacity, float64(set.Capacity), set.Name)
	}
	for _, l := range s.Limits {
		if l.Capacity > 0 { // without a capacity, there is one limit for all sources
			add(prefixes, float64(l.Debts), l.Name)
			add(space, float64(l.Capacity), l.Name)
		}
		add(evictions, float64(l.Evictions), l.Name)
	}
	for _, p := range s.Protections {
		add(active, truth(p.Active), p.Service)
	}
}
