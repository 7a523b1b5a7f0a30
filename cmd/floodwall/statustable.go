// SPDX-License-Identifier: Apache-2.0

// This file shows the running policy as tables: devices, rules, checks, sets, limits and protections.

package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// StatusTables returns the tables of a status. Some of the tables may have no rows. If all is set, the tables include checks and built-in rules that
// have counted no packet.
func StatusTables(s *control.Status, all bool) []*wording.Table {
	return []*wording.Table{deviceTable(s), ruleTable(s, all), checkTable(s, all), setTable(s), limitTable(s), protectionTable(s), zoneTable(s), udpTable(s)}
}

func deviceTable(s *control.Status) *wording.Table {
	t := wording.NewTable("device", "stage", "mode")
	for _, d := range s.Devices {
		t.Row(d.Name, string(d.Stage), modeText(d))
	}
	return t
}

// modeText returns the mode of a device. If a flood changes it, the text also has the time since the last change.
func modeText(d control.DeviceStatus) string {
	if !d.ByFlood {
		return cmp.Or(d.Mode, "-")
	}
	other := "native in a flood"
	if d.Mode == string(datapath.Native) {
		other = "tc without a flood"
	}
	return fmt.Sprintf("%s for %s, %s", d.Mode, wording.Span(time.Since(*d.Since)), other)
}

func ruleTable(s *control.Status, all bool) *wording.Table {
	t := wording.NewTable("rule", "stage", "verdict", ">packets", ">bytes")
	for _, r := range s.Rules {
		if all || r.Line > 0 || r.Packets > 0 {
			ruleRow(t, r)
		}
	}
	ruleRow(t, s.Default)
	if all || s.NotIP.Packets > 0 {
		ruleRow(t, s.NotIP)
	}
	if s.Replies != nil {
		ruleRow(t, *s.Replies)
	}
	return t
}

func checkTable(s *control.Status, all bool) *wording.Table {
	t := wording.NewTable("check", "stage", "verdict", ">packets", ">bytes")
	for _, c := range s.Checks {
		if all || c.Packets > 0 {
			ruleRow(t, c)
		}
	}
	return t
}

func limitTable(s *control.Status) *wording.Table {
	t := wording.NewTable("limit of", ">prefixes", ">capacity", ">full", ">forgotten", "limit")
	for _, l := range s.Limits {
		prefixes, capacity, full := "-", "-", "-" // for one limit that all sources share
		if l.Capacity > 0 {
			prefixes, capacity, full = wording.Count(l.Debts), wording.Count(l.Capacity), fmt.Sprintf("%d%%", l.Debts*100/l.Capacity)
		}
		t.Row(l.Name, prefixes, capacity, full, wording.Count(l.Evictions), l.Limit)
	}
	return t
}

func protectionTable(s *control.Status) *wording.Table {
	t := wording.NewTable("protection of", "mode", "by", "cookies", ">connections", ">capacity", ">mss", ">wscale", "options")
	for _, p := range s.Protections {
		connections, capacity := "-", "-"
		if p.Flows.Capacity > 0 {
			connections, capacity = wording.Count(p.Flows.Entries), wording.Count(p.Flows.Capacity)
		}
		mss := fmt.Sprint(p.MSS[0])
		if p.MSS[1] != p.MSS[0] {
			mss += fmt.Sprintf(", %d", p.MSS[1])
		}
		scale := "-"
		if p.WScale >= 0 {
			scale = strconv.Itoa(p.WScale)
		}
		t.Row(p.Service, p.Mode, p.Method, cookies(p), connections, capacity, mss, scale, cmp.Or(strings.Join(p.Options, " "), "-"))
	}
	return t
}

func udpTable(s *control.Status) *wording.Table {
	t := wording.NewTable("udp service", "protocol", "flood")
	if s.UDP == nil {
		return t
	}
	for _, u := range s.UDP.Services {
		flood := "no"
		if u.Flood {
			flood = fmt.Sprintf("for %.0f s", u.Left)
		}
		t.Row(u.Service, u.Protocol, flood)
	}
	return t
}

func zoneTable(s *control.Status) *wording.Table {
	t := wording.NewTable("flooded zone", "for")
	if s.Names == nil {
		return t
	}
	for _, z := range s.Names.Flooded {
		t.Row(wording.Printable(z.Zone), fmt.Sprintf("%.0f s", z.Left))
	}
	return t
}

// clientsLine returns the number of known clients of UDP services, and of new ones.
func clientsLine(u *control.UDPStatus) string {
	return fmt.Sprintf("%s of UDP services, and %s", wording.Things(u.Known, "known client", "known clients"), wording.Count(u.New)+" new")
}

// cookies says whether SYNs are answered with cookies.
func cookies(p control.ProtectionStatus) string {
	switch {
	case p.Refused > 0:
		return fmt.Sprintf("refused for %.0f s", p.Refused)
	case p.Active && p.Always:
		return "always"
	case p.Active:
		return fmt.Sprintf("for %.0f s", p.Left)
	}
	return "no"
}

func ruleRow(t *wording.Table, r control.RuleStatus) {
	name := r.Name
	if r.Merged > 1 {
		name += fmt.Sprintf(" (and %s)", wording.Things(r.Merged-1, "more", "more"))
	}
	verdict := r.Verdict
	if r.Observe {
		verdict = "(" + verdict + ")"
	}
	packets, bytes := wording.Count(r.Packets), wording.Bytes(r.Bytes)
	if r.Uncounted {
		packets, bytes = "-", "-"
	}
	t.Row(name, string(r.Stage), verdict, packets, bytes)
}

func setTable(s *control.Status) *wording.Table {
	t := wording.NewTable("set", "kind", ">entries", ">capacity", ">full")
	for _, set := range s.Sets {
		full := "-"
		if set.Capacity > 0 {
			full = strconv.Itoa(set.Entries*100/set.Capacity) + "%"
		}
		t.Row(set.Name, set.Kind, wording.Count(set.Entries), wording.Count(set.Capacity), full)
	}
	return t
}
