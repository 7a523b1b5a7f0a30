// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// flowShare is a divisor of this host's memory. A table of flows that takes more than an eighth of the memory gets a note.
const flowShare = 8

// flowMemoryNote returns a note on a table of flows that takes a large part of the total memory. It returns "" for a small table. The kernel
// allocates the whole table at the start. While a policy with another table size replaces the old policy, there are two tables.
func flowMemoryNote(bytes, total uint64) string {
	if bytes <= total/flowShare {
		return ""
	}
	return fmt.Sprintf("the connections that protected services remember take %d MB in the kernel, of %d MB that this host has; "+
		"a smaller `flows` takes less", bytes>>20, total>>20)
}

// groNotes returns notes on devices on which SYNPROXY of nftables may drop IPv6. If neither the device nor its GRO has verified the checksum,
// SYNPROXY verifies it in the way of IPv4 (nf_ip_checksum in net/netfilter/nft_synproxy.c).
func groNotes(p *ir.Program, host *facts.Facts, t plan.Target) (notes []string) {
	if !anyRouter(p) || t == plan.TargetIptables {
		return nil
	}
	for _, d := range host.Devices {
		if d.GROOff {
			notes = append(notes, fmt.Sprintf("device %s has GRO off: if it does not check checksums itself, the kernel's SYNPROXY drops the "+
				"IPv6 packets that come in by it; `ethtool -K %s gro on` cures that", d.Name, d.Name))
		}
	}
	return notes
}

func anyRouter(p *ir.Program) bool {
	for i := range p.Protections {
		if p.Protections[i].Router {
			return true
		}
	}
	return false
}

// redirectNotes returns notes on protected services whose packets this host may redirect to other addresses (DNAT). An example are ports that Docker
// publishes. XDP runs before DNAT: it sees an address of this host on which no socket listens.
func redirectNotes(p *ir.Program, host *facts.Facts) (notes []string) {
	if len(host.Translations) == 0 {
		return nil
	}
	for i := range p.Protections {
		switch s := &p.Protections[i]; {
		case s.Router:
			notes = append(notes, fmt.Sprintf("service %q: this host has rules that redirect connections (DNAT, as of ports that Docker publishes): what comes for "+
				"an address of this host and is redirected is not protected, only what comes for the address of the server itself", s.Service))
		case !host.Listens(s.Ports):
			notes = append(notes, fmt.Sprintf("service %q: nothing listens on its ports here, and this host has rules that redirect connections (DNAT, as of ports "+
				"that Docker publishes): if they redirect those of the service, clients cannot connect while cookies are sent; "+
				"have it listen here (docker run --network host), or take `syn` out", s.Service))
		}
	}
	return notes
}
