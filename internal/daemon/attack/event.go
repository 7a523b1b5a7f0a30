// SPDX-License-Identifier: Apache-2.0

package attack

// Values of State in a Turn, which is the Data of an Event.
const (
	Started   = "started"
	Crowded   = "crowd" // a load has risen, but is no attack: see Verdict
	Suggested = "suggested"
	NoRule    = "no rule" // `auto` adds no rule; Why is the reason
	Over      = "over"
)

// Event is a change of the state of an attack, or an error. The Watcher continues after an error.
type Event struct {
	Text string
	Err  error
	Data *Turn // nil with an error
}

// Turn is the content of an Event for programs. Every user of this host may read a Turn, so it contains no data of packets, and no suggested rules.
type Turn struct {
	State  string  `json:"state"` // Started, Suggested or Over; or the action on an automatic rule, as in a Step
	Attack Summary `json:"attack"`
	Rules  int     `json:"rules,omitempty"` // number of suggested rules
	Rule   string  `json:"rule,omitempty"`  // the name of the automatic rule
	Why    string  `json:"why,omitempty"`   // the reason for the action on the rule, or why there is no rule; with numbers
	At     string  `json:"at,omitempty"`    // the service of a crowd
	Facts  *Facts  `json:"facts,omitempty"` // the facts that distinguish a crowd from an attack
}
