package feed

import "time"

// Standing says how a source stands.
type Standing string

// The standings, the worst first.
const (
	StandsNone    Standing = "none"    // there is no copy
	StandsStale   Standing = "stale"   // the copy was not confirmed for three periods
	StandsHeld    Standing = "held"    // a newer list waits to be accepted
	StandsFailing Standing = "failing" // the last fetch failed
	StandsFresh   Standing = "ok"
)

// stalePeriods is after how many periods a copy that was not confirmed is an alert.
const stalePeriods = 3

// Status is how a source stands.
type Status struct {
	Source
	State    Standing   `json:"state"`
	Why      string     `json:"why,omitempty"`     // it is not ok
	Entries  int        `json:"entries"`           // of the copy
	Fetched  *time.Time `json:"fetched,omitempty"` // the copy
	Checked  *time.Time `json:"checked,omitempty"` // that it is the newest; nil: not known, as the clock was wrong
	Age      float64    `json:"age,omitempty"`     // seconds since then
	Next     *time.Time `json:"next,omitempty"`
	Removed  []Removed  `json:"removed,omitempty"`
	More     int        `json:"more_removed,omitempty"`
	Reasons  string     `json:"-"`
	HeldSize int        `json:"held_entries,omitempty"`
	SHA      string     `json:"copy_sha256,omitempty"` // of the body that the copy was made of
}

// Status reads how a source stands. What cannot be read is missing from it.
func (st Store) Status(s Source) Status {
	now := time.Now()
	out := Status{Source: s, State: StandsFresh}
	if err := st.check(s); err != nil {
		out.State, out.Why = StandsNone, err.Error()
		return out
	}
	known := st.readState(s)
	if !known.Next.IsZero() {
		out.Next = &known.Next
	}
	c, err := readHead(st.file(s, copyFile))
	if err != nil || c == nil {
		out.State, out.Why = StandsNone, known.Error
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
		out.State, out.Why = StandsStale, known.Error
	case held != nil:
		out.State, out.Why = StandsHeld, s.holds(c.Entries, held.Entries)
	case known.Error != "":
		out.State, out.Why = StandsFailing, known.Error
	}
	if held != nil {
		out.HeldSize = held.Entries
	}
	return out
}
