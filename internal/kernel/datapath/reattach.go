// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
)

// Lack is a program that is missing on a device.
type Lack struct {
	Device string
	Gone   bool   // no device has this name, or no device was attached under it
	Of     string // the traffic that is not filtered; "": all packets that the device receives
}

// Lacking lists the missing programs of a generation on the named devices. During a trial, in which the devices run other programs, it checks only
// the main attachment. A renamed device keeps its programs. A new device under its old name lacks all programs.
func (s *State) Lacking(names []string, number int) (list []Lack, err error) {
	devices, err := s.devices()
	if err != nil {
		return nil, err
	}
	defer closeDevices(devices)
	own, err := s.ownPrograms(generationName(number))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		dev, err := netlink.LinkByName(name)
		if err != nil {
			if !slices.ContainsFunc(devices, func(d *Device) bool { return d.pin == pinName(name) }) {
				list = append(list, Lack{Device: name, Gone: true})
			}
			continue
		}
		d := find(devices, dev)
		if d == nil {
			list = append(list, Lack{Device: name})
			continue
		}
		if !slices.Contains(own, d.program) {
			continue
		}
		for _, side := range sides {
			if s.has(number, pinSide(d.place(side))) && d.sideOf(side).link == nil {
				list = append(list, Lack{Device: name, Of: d.traffic(side)})
			}
		}
	}
	return list, nil
}

// Held returns the number of the generation in the links of devices, including devices that have gone away. It returns 0 without links.
func (s *State) Held() (number int, err error) {
	devices, gone, err := s.links()
	if err != nil {
		return 0, err
	}
	defer closeDevices(devices)
	roles, err := s.roles()
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	for _, d := range append(devices, gone...) {
		number = max(number, roles[d.program].now())
	}
	return number, err
}

// Open opens a generation that has a program. The generation need not run.
func (s *State) Open(number int) (*Generation, error) { return s.openGeneration(number, nil) }

// MadeForGeneric reports whether a generation was applied to a device in generic mode.
func (s *State) MadeForGeneric(number int) bool { return s.has(number, pinLinear) }

// Reattach attaches the missing programs of a generation to devices. Each device is repaired independently: the error names the devices that failed.
// The Attachment has the mode for a device without an XDP program. During a trial a device gets the trial's program. The caller must hold the lock,
// and need not close the devices.
func (s *State) Reattach(to []Attachment, number int) (got []*Device, err error) {
	v, err := s.situation()
	if err != nil {
		return nil, err
	}
	defer v.close()
	swap := &swap{state: s, code: s.code(number, nil), old: v.devices}
	defer swap.close()
	if t := s.trialOf(v, number); t != nil {
		swap.code = s.trialCodeOf(t)
	}
	for _, a := range to {
		d, attachErr := swap.reattach(a.Device, a.Mode)
		if attachErr != nil {
			err = errors.Join(err, attachErr)
			continue
		}
		got, err = append(got, d), errors.Join(err, s.returned(d))
	}
	err = errors.Join(err, s.renameLinks(slices.Concat(v.devices, swap.added)))
	closeDevices(swap.added)
	return got, err
}

// reattach attaches the missing programs to one device.
func (s *swap) reattach(name string, mode Mode) (*Device, error) {
	dev, err := findDevice(name)
	if err != nil {
		return nil, err
	}
	d := find(s.old, dev)
	if d == nil {
		if d, err = s.attach(dev, mode); err != nil {
			return nil, err
		}
		s.added = append(s.added, d)
		return d, nil
	}
	for _, side := range sides {
		prog, err := s.code.program(d.place(side))
		if err != nil {
			return nil, err
		}
		if prog != nil && d.sideOf(side).link == nil {
			if err := s.state.attachSide(d, side, prog); err != nil {
				return nil, err
			}
		}
	}
	return d, nil
}

// trialOf returns the trial of a generation, or nil if it has ended. If all devices have gone away, no link shows the trial, so trialOf reads it from
// the directories.
func (s *State) trialOf(v *situation, number int) *Trial {
	if v.trial != nil && v.trial.New == number && v.trial.Deadline != confirmed && !v.trial.Expired() {
		return v.trial
	}
	if len(v.devices) > 0 {
		return nil
	}
	t, err := s.readTrial(number)
	if err != nil || t.Deadline == confirmed || t.Expired() {
		return nil
	}
	return t
}

// trialCodeOf returns the programs of a trial for devices that both the new and the old generation have. It finds only programs that a device has
// already run.
func (s *State) trialCodeOf(t *Trial) *code {
	c := s.code(t.New, nil)
	c.pins = func(mode Mode) string {
		for _, v := range []variant{{mode, true, true}, {mode, true, false}} {
			path := s.path(trialName(t.New), v.pin())
			if _, err := os.Stat(path); err == nil {
				return path
			}
		}
		return s.path(trialName(t.New), variant{mode, true, true}.pin())
	}
	return c
}

// Stands records that the policy of a record is in force. The field Record.Stands shows this also after another tool has removed the whole policy
// from netfilter. The caller must hold the lock.
func (s *State) Stands(number int) error {
	numbers, err := s.generations()
	if err != nil {
		return err
	}
	if !s.has(number, pinStands) {
		if err := pinText(s.path(generationName(number), pinStands), pinStands, nil); err != nil {
			return err
		}
	}
	for _, n := range numbers {
		if n != number {
			if err := removeUnused(s.path(generationName(n), pinStands)); err != nil {
				return fmt.Errorf("generation %d: %w", n, err)
			}
		}
	}
	return nil
}
