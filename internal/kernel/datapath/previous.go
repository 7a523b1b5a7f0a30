// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"
)

// Each generation has a text with the number of the generation that it replaced. A replaced generation has a text with its devices. No text records
// which generation runs: the links show that.
const (
	pinBefore  = "before"
	pinDevices = "devices"
)

// before returns the number of the generation that ran when the generation n was installed. It returns 0 for none. The returned generation may be
// gone.
func (s *State) before(n int) (int, error) {
	text, err := readText(s.path(generationName(n), pinBefore), pinBefore)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("generation %d: %w", n, err)
	}
	before, err := strconv.Atoi(string(text))
	if err != nil {
		return 0, fmt.Errorf("generation %d: %s: %w", n, pinBefore, err)
	}
	return before, nil
}

func (s *State) setBefore(n, before int) error {
	return replaceText(s.path(generationName(n), pinBefore), pinBefore, []byte(strconv.Itoa(before)))
}

// previousDevice describes a device that a generation had.
type previousDevice struct {
	Name  string
	Index int
	Mode  Mode
}

// remember records the devices of a generation before they get another program.
func (s *State) remember(n int, devices []*Device) error {
	list := []previousDevice{}
	for _, d := range devices {
		list = append(list, previousDevice{d.Name, d.ifindex, d.Mode})
	}
	return s.rememberList(n, list)
}

func (s *State) rememberList(n int, list []previousDevice) error {
	text, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("generation %d: devices: %w", n, err)
	}
	if err := replaceText(s.path(generationName(n), pinDevices), pinDevices, text); err != nil {
		return fmt.Errorf("generation %d: %w", n, err)
	}
	return nil
}

// returned records in all replaced generations the new index of a device that has come back. Without this the end of a trial and Rollback would leave
// the device out.
func (s *State) returned(d *Device) error {
	numbers, err := s.generations()
	if err != nil {
		return err
	}
	for _, n := range numbers {
		if !s.has(n, pinDevices) {
			continue
		}
		list, err := s.remembered(n)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(list, func(h previousDevice) bool { return h.Name == d.Name && h.Index != d.ifindex })
		if i < 0 {
			continue
		}
		list[i].Index = d.ifindex
		if err := s.rememberList(n, list); err != nil {
			return err
		}
	}
	return nil
}

// remembered returns the devices that a generation had when it was replaced.
func (s *State) remembered(n int) (list []previousDevice, err error) {
	text, err := readText(s.path(generationName(n), pinDevices), pinDevices)
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("generation %d: %w", n, err)
	}
	return list, nil
}

// had returns a function that reports whether a replaced generation had a device. Generation 0 had none.
func (s *State) had(n int) (func(*Device) bool, error) {
	if n == 0 {
		return func(*Device) bool { return false }, nil
	}
	list, err := s.remembered(n)
	return func(d *Device) bool {
		return slices.ContainsFunc(list, func(h previousDevice) bool { return h.Index == d.ifindex })
	}, err
}

// exchange swaps the running generation and the kept one.
func (s *State) exchange(v *situation) error {
	if v.base == 0 {
		return ErrNotLoaded
	}
	previous, err := s.before(v.base)
	if err != nil {
		return err
	}
	if previous == 0 || !s.has(previous, pinManifest) || !s.has(previous, pinNative) {
		return ErrNoPrevious
	}
	list, err := s.remembered(previous)
	if err != nil {
		return err
	}
	if err := errors.Join(s.remember(v.base, v.devices), s.setBefore(previous, v.base)); err != nil {
		return err
	}
	swap := &swap{state: s, code: s.code(previous, nil), old: v.devices}
	defer swap.close()
	if err := swap.run(attachments(list, v.devices)); err != nil {
		return errors.Join(err, swap.undo())
	}
	return errors.Join(swap.finish(), s.sweep(previous, v.base))
}

// attachments returns the devices of a list that still exist, with their present names. A device that came back under its old name is new to the
// kernel but not to the policy, so it is included. A device that has a program now keeps the mode of this program. But if the generation ran at tc,
// it runs there again: the device may not send what the generation answers in native mode. If it ran in native mode and the program is at tc now, it
// gets native mode again unless the driver refuses that: nothing else may move it there.
func attachments(list []previousDevice, now []*Device) (to []Attachment) {
	for _, h := range list {
		dev, err := netlink.LinkByIndex(h.Index)
		if err != nil {
			dev, err = netlink.LinkByName(h.Name)
		}
		if err != nil {
			continue
		}
		a := Attachment{Device: dev.Attrs().Name, Mode: h.Mode}
		if d := find(now, dev); d != nil && h.Mode == Native && d.Mode == TC {
			a.Mode = Auto
		} else if d != nil && h.Mode != TC {
			a.Mode = Keep
		}
		to = append(to, a)
	}
	return to
}
