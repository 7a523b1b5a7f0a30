// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
)

// Note is the name of a text that is stored with a generation, separately from the manifest. Few commands read such a text, or its content becomes
// known only when the generation runs.
type Note string

// The notes.
const (
	NoteSource  Note = "source"  // the source of the generation
	NoteCounted Note = "counted" // counts of counters that are gone
	NoteRepairs Note = "repairs" // how often parts were restored that other tools had removed
	NoteMoves   Note = "moves"   // the last change of each device's mode
)

// SetNote stores a note with a generation, and replaces an earlier one. The caller must hold the lock.
func (s *State) SetNote(number int, which Note, text []byte) error {
	if err := replaceText(s.path(generationName(number), string(which)), string(which), text); err != nil {
		return fmt.Errorf("generation %d: %w", number, err)
	}
	return nil
}

// Note reads a note of a generation. It returns nil when there is none.
func (s *State) Note(number int, which Note) ([]byte, error) {
	text, err := readText(s.path(generationName(number), string(which)), string(which))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("generation %d: %w", number, err)
	}
	return text, nil
}
