package guard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
)

// Bound is the most instructions that a kind of packet may take.
type Bound struct {
	Kind string `json:"kind"` // one of Kinds
	Most int    `json:"most"`
	Why  string `json:"why"` // what is wrong when it takes more
}

// Finding is a bound, and what a packet of the kind executed. Where the packets of a kind take different ways through a
// program, that is the mean of many.
type Finding struct {
	Bound
	Counts
	Lines []Line `json:"-"` // of the source, of the last of the packets
}

// Exceeded reports whether a packet executed more than it may.
func (f *Finding) Exceeded() bool { return f.Instructions > f.Most }

// looseness is the part of a bound that a figure may stay below it: a bound that leaves more no longer shows growth.
const looseness = 0.05

// Loose reports whether the bound leaves too much, and is to be lowered.
func (f *Finding) Loose() bool { return float64(f.Instructions) < (1-looseness)*float64(f.Most) }

// margin is the part of a figure that a new bound lies above it.
const margin = 0.02

// NewMost is the bound that fits the figure.
func (f *Finding) NewMost() int { return f.Instructions + int(margin*float64(f.Instructions)+0.5) }

// Read reads bounds: a JSON array.
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
