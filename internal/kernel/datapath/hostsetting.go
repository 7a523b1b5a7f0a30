package datapath

import (
	"errors"
	"os"
)

// pinSetting keeps the host's value of a setting that a generation changes. It belongs to the state and not to a
// generation: it is written before the setting changes, and removed when the setting is restored, however generations
// change in between.
const pinSetting = "setting"

// HostSetting is the text that KeepSetting has kept, nil when there is none, or when it was the setting of a network
// namespace that has ended.
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

// KeepSetting keeps a text until ForgetSetting, unless one is kept already. The caller holds the lock.
func (s *State) KeepSetting(text []byte) error {
	if s.keepsSetting() {
		return nil
	}
	return pinText(s.path(pinSetting), pinSetting, text)
}

// ForgetSetting removes the text. The caller holds the lock.
func (s *State) ForgetSetting() error { return removeUnused(s.path(pinSetting)) }

func (s *State) keepsSetting() bool {
	_, err := os.Stat(s.path(pinSetting))
	return err == nil
}
