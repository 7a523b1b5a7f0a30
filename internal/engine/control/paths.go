// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// bridgedNotes returns notes for a policy on a bridge. With br_netfilter such a policy also decides about frames that the bridge forwards between its
// ports, because br_netfilter passes them to netfilter. XDP on the bridge sees only packets for this host.
func bridgedNotes(m *manifest.Manifest) (notes []string) {
	names := missed(m, byName)
	if len(names) == 0 {
		return nil
	}
	bridges, settings := facts.BridgedAsOwn(m.Devices)
	for _, b := range bridges {
		remedy := fmt.Sprintf("`sysctl -w %s=0` leaves it to the bridge", strings.Join(settings, "=0 "))
		if m.Target != plan.TargetXDP {
			remedy += ", and `--target xdp` does not see it"
		}
		notes = append(notes, fmt.Sprintf("br_netfilter is on (%s), so what bridge %s passes between its ports, as of guests behind it, also meets what drops at raw and filter: %s; %s",
			strings.Join(settings, ", "), b, strings.Join(names[:min(len(names), mostMissed)], ", "), remedy))
	}
	return notes
}

// offloadNotes returns a note on packets that bypass a policy because of a flowtable of nftables: packets of a forwarded connection in the table
// reach no hook after ingress. If flowtables cannot be listed, there is no note. Other parts of the program report that error.
func offloadNotes(ctx context.Context, m *manifest.Manifest) []string {
	atFilter := func(r manifest.Rule) bool { return r.Stage == plan.StageFilter || r.Also == plan.StageFilter }
	stateful := slices.ContainsFunc(m.Rules, atFilter)
	if !stateful && m.Target != plan.TargetIptables {
		return nil
	}
	if offloads, err := netfilter.Offloads(ctx); err != nil || !offloads {
		return nil
	}
	note := "nftables has a flowtable, which forwards the packets of connections that it knows past raw and filter: rules there decide and count the first packets of a connection only"
	if m.Target == plan.TargetIptables {
		note += ", and `block` does not end one; targets xdp and nftables block before the flowtable"
	}
	return []string{note}
}
