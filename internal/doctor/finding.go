package doctor

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Severity says what a finding means to the host.
type Severity string

// The severities, from the best to the worst.
const (
	OK      Severity = "ok"      // looked at, and well
	Note    Severity = "note"    // good to know, or could not be looked at
	Warning Severity = "warning" // costs packets or time, or will when a flood comes; something on this host can be done
	Problem Severity = "problem" // packets are lost now, or pass that the policy drops
)

// Severities lists the severities, the worst first.
var Severities = []Severity{Problem, Warning, Note, OK}

// RemedyKind says what the text of a remedy is.
type RemedyKind string

// The kinds of remedies.
const (
	Command RemedyKind = "command" // for a shell, as root
	Policy  RemedyKind = "policy"  // lines for the policy file
	Advice  RemedyKind = "advice"  // for a person
)

// Finding is one thing that was looked at. The fields are part of the interface to monitoring and keep their names.
type Finding struct {
	ID         string            `json:"id"` // the same for the same thing on every host and in every version
	Severity   Severity          `json:"severity"`
	Device     string            `json:"device,omitempty"`
	Evidence   string            `json:"evidence"`          // what was read, and from where
	Numbers    map[string]uint64 `json:"numbers,omitempty"` // the numbers in the evidence
	Cost       string            `json:"cost,omitempty"`    // what it does to packets
	Remedy     string            `json:"remedy,omitempty"`
	RemedyKind RemedyKind        `json:"remedy_kind,omitempty"`
}

// bad reports whether the finding is one that monitoring wakes people for.
func (f Finding) bad() bool { return f.Severity == Warning || f.Severity == Problem }

// Bad reports whether any finding is a warning or a problem.
func Bad(findings []Finding) bool { return slices.ContainsFunc(findings, Finding.bad) }

// command is the finding with a remedy for a shell: its parts, one after the other if each succeeds.
func (f Finding) command(parts ...string) Finding {
	f.Remedy, f.RemedyKind = strings.Join(parts, " && "), Command
	return f
}

// policy is the finding with lines of a policy as its remedy.
func (f Finding) policy(lines ...string) Finding {
	f.Remedy, f.RemedyKind = strings.Join(lines, "\n"), Policy
	return f
}

// advice is the finding with words as its remedy.
func (f Finding) advice(words string) Finding {
	f.Remedy, f.RemedyKind = words, Advice
	return f
}

// healthy is the finding that all is well with something: what it costs and its remedy fall away.
func (f Finding) healthy() Finding {
	f.Severity, f.Cost, f.Remedy, f.RemedyKind = OK, "", "", ""
	return f
}

// unseen is the finding that something could not be looked at.
func unseen(id string, err error) Finding {
	f := Finding{ID: id, Severity: Note, Evidence: "not looked at: " + err.Error()}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EPERM) {
		f.Cost = "unknown without root"
		return f.command("sudo floodwall doctor")
	}
	return f
}
