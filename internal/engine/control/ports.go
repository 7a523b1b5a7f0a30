// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// mostMissed is the largest number of rules that PortNotes names.
const mostMissed = 5

// byName reports whether a stage matches packets by the name of a device.
func byName(s plan.Stage) bool { return s == plan.StageRaw || s == plan.StageFilter }

// behindVRF reports whether a stage matches packets by the name of a VRF. Prerouting runs twice for a VRF. The first run has the name of the device
// below it (vrf_rcv_nfhook in drivers/net/vrf.c).
func behindVRF(s plan.Stage) bool { return s == plan.StageFilter }

// missed returns the names of the rules, checks and the default that drop packets at the stages for which at returns true.
func missed(m *manifest.Manifest, at func(plan.Stage) bool) (names []string) {
	if at(m.At.Last()) && m.Default != ir.Pass.String() {
		names = append(names, "default") // the first, because with it no packet is dropped by default
	}
	for _, r := range m.Rules {
		if (at(r.Stage) || at(r.Also)) && r.Verdict != ir.Pass.String() && !r.Observe {
			names = append(names, r.Name)
		}
	}
	for check := range packet.NumChecks {
		if m.Checks.Has(check) && !m.Observed.Has(check) && byName(m.CheckStage(check)) {
			names = append(names, check.String())
		}
	}
	return names
}

// missedInPlan is missed for a policy that is not applied yet.
func missedInPlan(pl *plan.Plan, at func(plan.Stage) bool) (names []string) {
	if at(pl.Default.Last()) && pl.Program.Default != ir.Pass {
		names = append(names, "default")
	}
	for i, place := range pl.Rules {
		if r := &pl.Program.Rules[i]; at(place.Last()) && r.Verdict != ir.Pass && !r.Observe {
			names = append(names, r.Name)
		}
	}
	return names
}

// PortNotes returns notes on rules of a policy that do not filter devices that are ports of a bridge or of a similar device.
func PortNotes(devices []string, pl *plan.Plan) []string {
	return portTexts(devices, pl.Target, func(at func(plan.Stage) bool) []string { return missedInPlan(pl, at) })
}

// portsOf is PortNotes for the policy of a manifest.
func portsOf(m *manifest.Manifest) []string {
	return portTexts(m.Devices, m.Target, func(at func(plan.Stage) bool) []string { return missed(m, at) })
}

// childTexts is portTexts for macvlans and ipvlans on top of the devices. `what` is the text of notFiltered.
func childTexts(devices []string, target plan.Target, what string) (texts []string) {
	children, err := facts.Children(devices)
	if err != nil {
		return nil
	}
	for _, c := range children {
		if slices.Contains(devices, c.Of) {
			continue
		}
		remedy := fmt.Sprintf("name %s in `devices`, too", c.Of)
		if target != plan.TargetXDP {
			remedy += ", or apply with `--target xdp`, which filters what comes by the device for both"
		}
		texts = append(texts, fmt.Sprintf("%s %s takes packets that come by device %s, and netfilter knows them as its own, so %s; %s",
			c.Kind, c.Of, c.Device, strings.Replace(what, "what it receives", "what "+c.Of+" receives", 1), remedy))
	}
	return texts
}

// portTexts returns texts on rules that do not filter devices that are ports, with the remedy. There is no text for a port if the policy also names
// its bridge, or the similar device, because then the rules filter the port. If devices cannot be listed, there is no text: other parts of the
// program report that error.
func portTexts(devices []string, target plan.Target, missedAt func(func(plan.Stage) bool) []string) (texts []string) {
	missed := missedAt(byName)
	if len(missed) == 0 {
		return nil
	}
	ports, err := facts.Ports(devices)
	if err != nil {
		return nil
	}
	all := notFiltered(missed)
	if target == plan.TargetIptables {
		all = "nothing of the policy filters what it receives"
	}
	for _, p := range ports {
		what := all
		if p.Kind == facts.VRF {
			what = notFiltered(missedAt(behindVRF))
		}
		if slices.Contains(devices, p.Of) || what == "" {
			continue
		}
		remedy := fmt.Sprintf("name %s in `devices` in its place", p.Of)
		if target != plan.TargetXDP {
			remedy += ", or apply with `--target xdp`, which filters the device itself"
		}
		texts = append(texts, fmt.Sprintf("%v, and netfilter knows its packets as those of %s, so %s; %s", p, p.Of, what, remedy))
	}
	return append(texts, childTexts(devices, target, all)...)
}

// notFiltered names the rules that do not filter a port. It returns "" when there are none.
func notFiltered(missed []string) string {
	if len(missed) == 0 {
		return ""
	}
	what := "these do not filter what it receives: " + strings.Join(missed[:min(len(missed), mostMissed)], ", ")
	if more := len(missed) - mostMissed; more > 0 {
		what += fmt.Sprintf(" and %d more", more)
	}
	return what
}
