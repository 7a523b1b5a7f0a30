// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Severity is the importance of a finding for the host.
type Severity string

// The severities, from the lowest to the highest.
const (
	OK      Severity = "ok"      // the subject was examined and is in order
	Note    Severity = "note"    // useful to know, or the subject could not be examined
	Warning Severity = "warning" // costs packets or time, now or during a flood; can be corrected on this host
	Problem Severity = "problem" // packets are lost now, or packets pass although the policy drops them
)

// Severities lists the severities, the highest first.
var Severities = []Severity{Problem, Warning, Note, OK}

// RemedyKind says how to use the text of a remedy.
type RemedyKind string

// The kinds of remedies.
const (
	Command RemedyKind = "command" // a command for a shell, as root
	Policy  RemedyKind = "policy"  // lines for the policy file
	Advice  RemedyKind = "advice"  // text for a person
)

// Finding is the result of examining one subject. Monitoring systems read the fields, so their names must not change.
type Finding struct {
	ID         string            `json:"id"` // identifies the subject; the same on every host and in every version
	Severity   Severity          `json:"severity"`
	Device     string            `json:"device,omitempty"`
	Evidence   string            `json:"evidence"`          // the data that was read, and its source
	Numbers    map[string]uint64 `json:"numbers,omitempty"` // the numbers in the evidence
	Cost       string            `json:"cost,omitempty"`    // the effect on packets
	Remedy     string            `json:"remedy,omitempty"`
	RemedyKind RemedyKind        `json:"remedy_kind,omitempty"`
}

// bad reports whether monitoring should alert for the finding.
func (f Finding) bad() bool { return f.Severity == Warning || f.Severity == Problem }

// Bad reports whether at least one finding is a warning or a problem.
func Bad(findings []Finding) bool { return slices.ContainsFunc(findings, Finding.bad) }

// command returns the finding with a shell command as its remedy. Each part runs only if the part before it succeeds.
func (f Finding) command(parts ...string) Finding {
	f.Remedy, f.RemedyKind = strings.Join(parts, " && "), Command
	return f
}

// policy returns the finding with lines of a policy as its remedy.
func (f Finding) policy(lines ...string) Finding {
	f.Remedy, f.RemedyKind = strings.Join(lines, "\n"), Policy
	return f
}

// advice returns the finding with text for a person as its remedy.
func (f Finding) advice(words string) Finding {
	f.Remedy, f.RemedyKind = words, Advice
	return f
}

// healthy returns the finding with the severity OK and without cost and remedy.
func (f Finding) healthy() Finding {
	f.Severity, f.Cost, f.Remedy, f.RemedyKind = OK, "", "", ""
	return f
}

// unseen returns the finding that a subject could not be examined.
func unseen(id string, err error) Finding {
	f := Finding{ID: id, Severity: Note, Evidence: "not looked at: " + err.Error()}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EPERM) {
		f.Cost = "unknown without root"
		return f.command("sudo floodwall doctor")
	}
	return f
}
