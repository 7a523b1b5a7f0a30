package datapath

import (
	"errors"
	"fmt"
	"os"
)

// Record is a generation without a program: a policy that another target runs, which keeps its manifest here.
// Generations of both kinds share their numbers.
type Record struct {
	Number   int
	Manifest []byte
	Took     bool // effect for good: see State.Took
	Stands   bool // it is the one in force: see State.Stands
}

// Records lists the records, newest first.
func (s *State) Records() (records []*Record, err error) {
	manifests, err := s.Manifests()
	for _, m := range manifests {
		if s.isRecord(m.Number) {
			records = append(records, &Record{m.Number, m.Text, s.has(m.Number, pinTook), s.has(m.Number, pinStands)})
		}
	}
	return records, err
}

// Manifest is what a generation, with a program or without, keeps of its policy.
type Manifest struct {
	Number int
	Text   []byte
}

// Manifests lists those of all generations that there are, newest first.
func (s *State) Manifests() (manifests []Manifest, err error) {
	numbers, err := s.generations()
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, n := range numbers {
		text, err := readText(s.path(generationName(n), pinManifest), pinManifest)
		if errors.Is(err, os.ErrNotExist) {
			continue // incomplete, or another command has removed it since
		}
		if err != nil {
			return nil, fmt.Errorf("generation %d: %w", n, err)
		}
		manifests = append(manifests, Manifest{n, text})
	}
	return manifests, nil
}

// pinTook marks a record that took effect, and pinStands the one that is in force.
const (
	pinTook   = "took"
	pinStands = "stands"
)

// Took records that the policy of a record is in force for good. A record without this note is on trial, or the remains
// of a trial or of an apply that died, and Rollback does not return to it. The caller holds the lock.
func (s *State) Took(n int) error {
	if s.has(n, pinTook) {
		return nil
	}
	return pinText(s.path(generationName(n), pinTook), pinTook, nil)
}

// RemoveRecord removes a record. One that is not there is an error. The caller holds the lock.
func (s *State) RemoveRecord(n int) error {
	if !s.isRecord(n) {
		return fmt.Errorf("generation %d: there is no record of that number", n)
	}
	return s.removeGeneration(n)
}

// isRecord reports whether a generation is a record. A generation with a program pins its manifest last and removes it
// first.
func (s *State) isRecord(n int) bool { return s.has(n, pinManifest) && !s.has(n, pinNative) }

// has reports whether a generation has a file.
func (s *State) has(n int, pin string) bool {
	_, err := os.Stat(s.path(generationName(n), pin))
	return err == nil
}
