// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// synproxyOptions compares the options that are announced for protected services behind this host with the present options of their servers.
func synproxyOptions(ctx context.Context, h *host) []Finding {
	const id = "synproxy-options"
	list, err := Mismatches(ctx, h.instance)
	if err != nil && !errors.Is(err, datapath.ErrNotLoaded) {
		return []Finding{unseen(id, err)}
	}
	if len(list) == 0 {
		return []Finding{{ID: id, Severity: OK, Evidence: "no server behind this host announces other options than SYNPROXY does for it"}}
	}
	var found []Finding
	for _, m := range list {
		found = append(found, judgeMismatch(id, m))
	}
	return found
}

func judgeMismatch(id string, m Mismatch) Finding {
	var servers []string
	for _, s := range m.Servers {
		servers = append(servers, s.String())
	}
	f := Finding{
		ID: id, Severity: Note,
		Evidence: fmt.Sprintf("service %q: %s (asked by a connection to %s)", m.Service, strings.Join(m.Differs, "; "), strings.Join(servers, ", ")),
		Cost:     "connections do not use all that their servers can",
	}
	if m.Broken != nil {
		f.Severity, f.Cost = Warning, costOf(m.Broken)
	}
	return f.command("floodwall apply " + m.Policy)
}

// brokenCosts describes the effect on connections if SYN-ACKs announce more than a server supports, by the kind of the option.
var brokenCosts = map[Kind]string{
	KindMSS:    "clients send segments that are larger than the server takes: they are lost, and connections with data stall",
	KindWScale: "clients take the window of the server for larger than it is: what they send beyond it is lost, and connections slow down or stall",
	KindOption: "clients use an option that the server knows nothing of: it ignores what they say by it, and they wait for what it does not send",
}

func costOf(kinds []Kind) string {
	var costs []string
	for _, k := range kinds {
		costs = append(costs, brokenCosts[k])
	}
	return strings.Join(costs, "; ")
}
