package attack

// Turns of an attack, in the Data of an Event.
const (
	Started   = "started"
	Crowded   = "crowd" // a load has risen, and is none: see Verdict
	Suggested = "suggested"
	Over      = "over"
)

// Event is a turn of an attack, or an error, after which the Watcher goes on.
type Event struct {
	Text string
	Err  error
	Data *Turn // nil with an error
}

// Turn is what an Event tells programs. Every user of this host may read it: it has nothing of packets, as suggested rules have.
type Turn struct {
	State  string  `json:"state"` // Started, Suggested or Over; or what was done with an automatic rule, as in a Step
	Attack Summary `json:"attack"`
	Rules  int     `json:"rules,omitempty"` // how many are suggested
	Rule   string  `json:"rule,omitempty"`  // the name of the automatic rule
	Why    string  `json:"why,omitempty"`   // that was done with it, with the figures
	At     string  `json:"at,omitempty"`    // where a crowd is
	Facts  *Facts  `json:"facts,omitempty"` // that it is told from an attack by
}
