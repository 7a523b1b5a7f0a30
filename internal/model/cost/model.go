// SPDX-License-Identifier: Apache-2.0

package cost

import "time"

// Model has the measured costs of a host. All figures are nanoseconds of CPU time per packet.
type Model struct {
	Version int `json:"version"` // of the format and the meaning of the figures; see version

	Host Host      `json:"host"` // the host that was measured
	Time time.Time `json:"time"`

	Reach     map[string]float64 `json:"reach"`     // for each stage: the cost of a packet that the stage's first rule drops, without the cost of that rule
	Conntrack float64            `json:"conntrack"` // added between raw and filter if conntrack tracks the packet
	Route     float64            `json:"route"`     // added before filter: the cost of a lookup in this host's routing table, less that in an almost empty table
	Work      map[string]Work    `json:"work"`      // by target and stage: "nftables/raw"
}

// version is the version of the models that Write writes, and the only one that Read accepts. Before version 2, the
// cost of a hook included the costs of the test of the device and of the default action.
const version = 2

// Work has the costs of the operations that a stage does for a packet.
type Work struct {
	Hook  float64 `json:"hook"`  // of the hook itself, which every packet pays if the stage is in use
	Rule  float64 `json:"rule"`  // a rule that compares fields and does not match
	Set   float64 `json:"set"`   // a lookup in a set
	Limit float64 `json:"limit"` // a limit
	Local float64 `json:"local"` // a test whether an address is the host's own
}

// Host identifies the host on which a model was measured.
type Host struct {
	Kernel      string `json:"kernel"` // release and version
	CPU         string `json:"cpu"`    // model
	Cores       int    `json:"cores"`
	Mitigations string `json:"mitigations"` // of the CPU's vulnerabilities, sorted
}

// Mix has the numbers of packets that were observed for a while, and other properties of the host that affect the costs of packets.
type Mix struct {
	Seconds   float64           `json:"seconds"`
	Arrived   uint64            `json:"arrived"`   // at the policy's devices
	Local     uint64            `json:"local"`     // delivered to this host
	Forwarded uint64            `json:"forwarded"` // forwarded to other hosts
	Rules     map[string]uint64 `json:"rules"`     // decided by each rule, by the rule's name

	Tracked bool `json:"tracked"` // conntrack processes packets between raw and filter
	NAT     bool `json:"nat"`     // addresses or ports are translated between raw and filter

	Bypassed bool `json:"bypassed"` // packets may pass one stage and skip a later one, for example packets that a bridge forwards
}
