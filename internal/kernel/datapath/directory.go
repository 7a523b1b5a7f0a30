// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"os"
)

// pinDirectory is the name of the text with the path of the directory for the instance's files that survive a reboot. The text belongs to the state,
// not to a generation, so the files stay in one place whichever generation runs.
const pinDirectory = "directory"

// Directory returns the path that KeepDirectory has stored. It returns "" when no path is stored, or when the state belonged to a network namespace
// that has ended.
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

// KeepDirectory stores the path of the directory for the instance's files that survive a reboot. It replaces the previous one. The caller must hold
// the lock.
func (s *State) KeepDirectory(path string) error {
	if err := s.setFormat(); err != nil { // versions that know only the first format do not know this name
		return err
	}
	return replaceText(s.path(pinDirectory), pinDirectory, []byte(path))
}
