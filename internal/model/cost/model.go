package cost

import "time"

// Model is the measured costs of a host. All figures are nanoseconds of a CPU per packet.
type Model struct {
	Version int `json:"version"` // of what the figures mean: version

	Host Host      `json:"host"` // the one they were measured on
	Time time.Time `json:"time"`

	Reach     map[string]float64 `json:"reach"`     // by stage: what a packet has cost that its first rule drops, without that rule
	Conntrack float64            `json:"conntrack"` // added between raw and filter where conntrack looks at the packet
	Route     float64            `json:"route"`     // added before filter by the table of routes that the host had, to that of a nearly empty one
	Work      map[string]Work    `json:"work"`      // by target and stage: "nftables/raw"
}

// version is that of the models that are written, and the only one that is read. In models before 2, the cost of a hook
// had those of the test of the device and of the default in it.
const version = 2

// Work is what is done with a packet at a stage.
type Work struct {
	Hook  float64 `json:"hook"`  // that the stage is in use at all
	Rule  float64 `json:"rule"`  // a rule that compares fields and does not match
	Set   float64 `json:"set"`   // a lookup in a set
	Limit float64 `json:"limit"` // a limit
	Local float64 `json:"local"` // whether an address is the host's own
}

// Host identifies what a model was measured on.
type Host struct {
	Kernel      string `json:"kernel"` // release and version
	CPU         string `json:"cpu"`    // model
	Cores       int    `json:"cores"`
	Mitigations string `json:"mitigations"` // of the CPU's vulnerabilities, sorted
}

// Mix is the packets that were observed for a while, and what else on the host decides what they cost.
type Mix struct {
	Seconds   float64           `json:"seconds"`
	Arrived   uint64            `json:"arrived"`   // at the policy's devices
	Local     uint64            `json:"local"`     // delivered to this host
	Forwarded uint64            `json:"forwarded"` // to others
	Rules     map[string]uint64 `json:"rules"`     // decided by each rule, by its name

	Tracked bool `json:"tracked"` // conntrack looks at packets between raw and filter
	NAT     bool `json:"nat"`     // addresses or ports are translated between raw and filter

	Bypassed bool `json:"bypassed"` // packets may come by one stage and not by a later one, as those of a bridge's port do
}
