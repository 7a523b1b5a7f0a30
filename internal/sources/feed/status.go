// SPDX-License-Identifier: Apache-2.0

package feed

import "time"

// State is the state of a source.
type State string

// The states, the worst first.
const (
	StateNone    State = "none"    // there is no copy
	StateStale   State = "stale"   // the copy has not been confirmed for three periods
	StateHeld    State = "held"    // a newer list must be accepted by an operator
	StateFailing State = "failing" // the last fetch failed
	StateOK      State = "ok"
)

// stalePeriods is the number of periods after which an unconfirmed copy causes an alert.
const stalePeriods = 3

// Status is the status of a source.
type Status struct {
	Source
	State    State      `json:"state"`
	Why      string     `json:"why,omitempty"`     // the reason for any state other than ok
	Entries  int        `json:"entries"`           // the number of entries of the copy
	Fetched  *time.Time `json:"fetched,omitempty"` // the time at which the copy was fetched
	Checked  *time.Time `json:"checked,omitempty"` // the last time at which the copy was known to be the newest; nil: unknown, because the clock was wrong
	Age      float64    `json:"age,omitempty"`     // seconds since Checked
	Next     *time.Time `json:"next,omitempty"`
	Removed  []Removed  `json:"removed,omitempty"`
	More     int        `json:"more_removed,omitempty"`
	Reasons  string     `json:"-"`
	HeldSize int        `json:"held_entries,omitempty"`
	SHA      string     `json:"copy_sha256,omitempty"` // the checksum of the body from which the copy was made
}

// Status returns the status of a source. Data that cannot be read are missing in the result.
func (st Store) Status(s Source) Status {
	now := time.Now()
	out := Status{Source: s, State: StateOK}
	if err := st.check(s); err != nil {
		out.State, out.Why = StateNone, err.Error()
		return out
	}
	known := st.readState(s)
	if !known.Next.IsZero() {
		out.Next = &known.Next
	}
	c, err := readHead(st.file(s, copyFile))
	if err != nil || c == nil {
		out.State, out.Why = StateNone, known.Error
		return out
	}
	out.Entries, out.Fetched, out.Removed, out.More, out.Reasons, out.SHA = c.Entries, &c.Fetched, c.Removed, c.More, c.Reasons(), c.SHA256
	checked := known.Checked
	if c.Fetched.After(checked) && !ahead(c.Fetched, now) {
		checked = c.Fetched
	}
	if !checked.IsZero() {
		out.Checked, out.Age = &checked, max(0, now.Sub(checked).Seconds())
	}
	held, _ := readHead(st.file(s, heldFile))
	switch {
	case now.Sub(checked) > stalePeriods*s.Every:
		out.State, out.Why = StateStale, known.Error
	case held != nil:
		out.State, out.Why = StateHeld, s.holds(c.Entries, held.Entries)
	case known.Error != "":
		out.State, out.Why = StateFailing, known.Error
	}
	if held != nil {
		out.HeldSize = held.Entries
	}
	return out
}
