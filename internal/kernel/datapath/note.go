package datapath

import (
	"errors"
	"fmt"
	"os"
)

// Note is a text that is kept with a generation beside its manifest: few commands read it, or its content becomes known
// only when the generation runs.
type Note string

// The notes.
const (
	NoteSource  Note = "source"  // what it was compiled from
	NoteCounted Note = "counted" // what was counted for it in places that are gone
	NoteRepairs Note = "repairs" // how often what others removed of it was put back
)

// SetNote keeps a note with a generation, in place of an earlier one. The caller holds the lock.
func (s *State) SetNote(number int, which Note, text []byte) error {
	if err := replaceText(s.path(generationName(number), string(which)), string(which), text); err != nil {
		return fmt.Errorf("generation %d: %w", number, err)
	}
	return nil
}

// Note reads a note of a generation, nil when there is none.
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
