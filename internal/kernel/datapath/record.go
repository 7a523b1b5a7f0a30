// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
)

// Record is a generation without a program: a policy for another target, whose manifest is stored here. Records and other generations share one
// sequence of numbers.
type Record struct {
	Number   int
	Manifest []byte
	Took     bool // its policy came into force permanently: see State.Took
	Stands   bool // its policy is in force: see State.Stands
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

// Manifest is the stored manifest of a generation, with or without a program.
type Manifest struct {
	Number int
	Text   []byte
}

// Manifests lists the manifests of all generations, newest first.
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
			continue // the generation is incomplete, or another command has removed it meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("generation %d: %w", n, err)
		}
		manifests = append(manifests, Manifest{n, text})
	}
	return manifests, nil
}

// pinTook marks a record whose policy came into force permanently. pinStands marks the record whose policy is in force now.
const (
	pinTook   = "took"
	pinStands = "stands"
)

// Took records that the policy of a record has come into force permanently. A record without this mark is on trial, or was left by a trial or an
// apply that died. Rollback does not return to such a record. The caller must hold the lock.
func (s *State) Took(n int) error {
	if s.has(n, pinTook) {
		return nil
	}
	return pinText(s.path(generationName(n), pinTook), pinTook, nil)
}

// RemoveRecord removes a record. It returns an error if there is no record with this number. The caller must hold the lock.
func (s *State) RemoveRecord(n int) error {
	if !s.isRecord(n) {
		return fmt.Errorf("generation %d: there is no record of that number", n)
	}
	return s.removeGeneration(n)
}

// isRecord reports whether a generation is a record: it has a manifest and no program. A generation with a program has its program whenever it has
// its manifest, because the manifest is pinned last and removed first.
func (s *State) isRecord(n int) bool { return s.has(n, pinManifest) && !s.has(n, pinNative) }

// has reports whether the directory of a generation has the file pin.
func (s *State) has(n int, pin string) bool {
	_, err := os.Stat(s.path(generationName(n), pin))
	return err == nil
}
