package datapath

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// pinReplaces has the number of the generation that another one takes the place of with Replace, until Succeed.
const pinReplaces = "replaces"

// Replace is Install for a generation that is the same, to who rolls back, as the old one, which runs or is a record.
// Nothing is removed, and until Succeed is called Rollback returns to the old one, as it does after an Install. The caller
// holds the lock.
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

// Succeed has a generation that Replace has installed take the place of the old one for good: Rollback returns to the one
// before that, and the old one is removed. For all others it does nothing. A process that dies leaves what the next call
// completes. The caller holds the lock.
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
