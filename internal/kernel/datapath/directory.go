package datapath

import (
	"errors"
	"os"
)

// pinDirectory keeps the path of the directory in which the instance keeps files over a reboot. It is the state's and no generation's: the
// files stay where they are whatever generation runs.
const pinDirectory = "directory"

// Directory is the path that KeepDirectory has kept, "" when there is none, or when it was that of a network namespace that has ended.
func (s *State) Directory() (string, error) {
	if whose, err := s.owner(); whose == deceased || err != nil {
		return "", err
	}
	text, err := readText(s.path(pinDirectory), pinDirectory)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return string(text), err
}

// KeepDirectory keeps the path of the directory in which the instance keeps files over a reboot, in the place of the one before. The caller
// holds the lock.
func (s *State) KeepDirectory(path string) error {
	if err := s.setFormat(); err != nil { // the first format does not know the name
		return err
	}
	return replaceText(s.path(pinDirectory), pinDirectory, []byte(path))
}
