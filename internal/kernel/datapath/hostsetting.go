// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"os"
)

// pinSetting is the name of the text with the host's original value of a setting that a generation changes. The text belongs to the state, not to a
// generation. It is written before the setting changes, and removed when the setting is restored, whichever generations run in between.
const pinSetting = "setting"

// HostSetting returns the text that KeepSetting has stored. It returns nil when no text is stored, or when the state belonged to a network namespace
// that has ended.
func (s *State) HostSetting() ([]byte, error) {
	if whose, err := s.owner(); whose == deceased || err != nil {
		return nil, err
	}
	text, err := readText(s.path(pinSetting), pinSetting)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// KeepSetting stores a text until ForgetSetting is called. It changes nothing if a text is already stored. The caller must hold the lock.
func (s *State) KeepSetting(text []byte) error {
	if s.keepsSetting() {
		return nil
	}
	return pinText(s.path(pinSetting), pinSetting, text)
}

// ForgetSetting removes the text of KeepSetting. The caller must hold the lock.
func (s *State) ForgetSetting() error { return removeUnused(s.path(pinSetting)) }

func (s *State) keepsSetting() bool {
	_, err := os.Stat(s.path(pinSetting))
	return err == nil
}
