// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
)

// Bound is the largest number of instructions for a kind of packet.
type Bound struct {
	Kind   string `json:"kind"` // one of Kinds
	Most   int    `json:"most"`
	Why    string `json:"why"`              // the fault if a packet takes more
	Random bool   `json:"random,omitempty"` // the figure depends on the keys of a table, which are random in each program
}

// Finding is a bound, and the instructions that a packet of the kind executed. If packets of a kind take different paths through a program, it is the
// mean of many.
type Finding struct {
	Bound
	Counts
	Lines []Line `json:"-"` // source lines of the last of the packets
}

// Exceeded reports whether a packet executed more than the bound allows.
func (f *Finding) Exceeded() bool { return f.Instructions > f.Most }

// looseness is the share by which a figure may be below its bound. If a bound is looser, it can no longer show growth.
const looseness = 0.05

// randomLooseness is the looseness for a figure that varies by itself.
const randomLooseness = 0.15

// Loose reports whether the bound is too loose, and must be lowered.
func (f *Finding) Loose() bool {
	part := looseness
	if f.Random {
		part = randomLooseness
	}
	return float64(f.Instructions) < (1-part)*float64(f.Most)
}

// margin is the share by which a new bound is above the figure.
const margin = 0.02

// NewMost returns the bound for the figure.
func (f *Finding) NewMost() int { return f.Instructions + int(margin*float64(f.Instructions)+0.5) }

// Read reads bounds from a JSON array.
func Read(path string) (bounds []Bound, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("bounds: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&bounds); err != nil {
		return nil, fmt.Errorf("bounds %s: want a JSON array of {\"kind\": ..., \"most\": ..., \"why\": ...}: %w", path, err)
	}
	if d.More() {
		return nil, fmt.Errorf("bounds %s: text follows the array", path)
	}
	if err := check(bounds); err != nil {
		return nil, fmt.Errorf("bounds %s: %w", path, err)
	}
	return bounds, nil
}

func check(bounds []Bound) error {
	if len(bounds) == 0 {
		return errors.New("no bound is in it")
	}
	seen := map[string]bool{}
	for i, b := range bounds {
		switch {
		case !slices.Contains(Kinds(), b.Kind):
			return fmt.Errorf("bound %d: unknown kind %q, the kinds are %v", i+1, b.Kind, Kinds())
		case seen[b.Kind]:
			return fmt.Errorf("bound %d: kind %q has one already", i+1, b.Kind)
		case b.Most <= 0:
			return fmt.Errorf("bound %d: most must be positive, got %d", i+1, b.Most)
		}
		seen[b.Kind] = true
	}
	return nil
}
