// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"fmt"
	"net/netip"
)

// maxPeers is the most addresses in a message.
const maxPeers = 16384

// PeersSubject is the subject on which a node requests the addresses of the other nodes.
func PeersSubject(node string) string { return Nodes + "." + node + ".peers" }

// Peers are the addresses from which nodes of the fleet have connected to hubs.
type Peers struct {
	Addresses []netip.Addr `json:"addresses"`
}

// Bytes is the message.
func (p Peers) Bytes() []byte {
	p.Addresses = p.Addresses[:min(len(p.Addresses), maxPeers)]
	text, _ := json.Marshal(p) // cannot fail for addresses
	return text
}

// ParsePeers reads the addresses of nodes.
func ParsePeers(b []byte) (p Peers, err error) {
	if err = json.Unmarshal(b, &p); err == nil && len(p.Addresses) > maxPeers {
		err = fmt.Errorf("%d addresses of nodes, at most %d are taken", len(p.Addresses), maxPeers)
	}
	return p, err
}
