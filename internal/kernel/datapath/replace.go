// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// pinReplaces is the name of the text with the number of the generation that Replace replaces. The text exists until Succeed.
const pinReplaces = "replaces"

// Replace is Install for a new generation with the same policy as the generation old, which runs or is a record. Replace removes no generation. Until
// Succeed is called, Rollback returns to old, as after an Install. After Succeed, Rollback treats both as one. The caller must hold the lock.
func (s *State) Replace(old int, p *Program, manifest []byte, to []Attachment, ends time.Time) ([]*Device, error) {
	return s.install(p, manifest, to, ends, old)
}

func (s *State) noteReplaces(number, old int) error {
	err := pinText(s.path(generationName(number), pinReplaces), pinReplaces, []byte(strconv.Itoa(old)))
	if err != nil {
		err = errors.Join(err, s.removeGeneration(number))
	}
	return err
}

// Succeed gives a generation that Replace has installed the place of the old one permanently. The old one is removed, and Rollback then returns to
// the generation before it. For any other generation Succeed does nothing. If the process dies, the next call completes the change. The caller must
// hold the lock.
func (s *State) Succeed(number int) error {
	if !s.has(number, pinReplaces) {
		return nil
	}
	path := s.path(generationName(number), pinReplaces)
	text, err := readText(path, pinReplaces)
	var old, before int
	if err == nil {
		old, err = strconv.Atoi(string(text))
	}
	if err == nil && s.has(old, pinManifest) {
		if before, err = s.before(old); err == nil {
			err = s.setBefore(number, before)
		}
	}
	if err == nil {
		err = s.discard(old)
	}
	if err == nil {
		err = removeUnused(path)
	}
	if err != nil {
		return fmt.Errorf("generation %d: %w", number, err)
	}
	return nil
}
