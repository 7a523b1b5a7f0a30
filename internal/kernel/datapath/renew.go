// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// ErrNotSettled is the error of Renew during a trial. Renew also returns it if the generation is not the previous one and does not run on all
// devices.
var ErrNotSettled = errors.New("another policy runs by now, or one is on trial")

// lasting are the maps that a program shares with its replacement in the same generation. They have all data that packets, limits, bans and readers
// write. All other maps are compiled from the policy and its lists.
var lasting = []string{
	image.Counters, image.Limits, image.Evictions, image.Dynamic, image.DynamicInfo, image.DynamicTexts, image.DynamicWhy, image.DynamicLengths, image.Verified, image.GameAnswers,
	image.Flows, image.FlowFilter, image.CookiesSent, image.SynKeys, image.ProtectionStates, image.HostEnds, image.Offences, image.Samples, image.Samplers,
	image.Traffic, image.TrafficSamplers, image.TrafficShares, image.ReplyFlows, image.ReplyFilter, image.ReplyCounts, image.FloodStates, image.Newcomers,
	image.RakNetServers, image.AnsweredNames, image.FloodedZones, image.ZoneTimes,
}

// LoadRenewal loads an image of the same policy with other lists. The new program takes over all state that the generation has collected. Constants
// that describe the layout of the shared maps must be equal to those of the generation.
func (g *Generation) LoadRenewal(im *image.Image) (*Program, error) {
	spec, err := im.Spec()
	if err != nil {
		return nil, err
	}
	kept := map[string]*ebpf.Map{}
	defer func() {
		for _, m := range kept {
			m.Close()
		}
	}()
	notes, err := g.notesReplies()
	if err != nil {
		return nil, err
	}
	for _, name := range lasting {
		if spec.Maps[name] == nil || !notes && isReplyTable(name) {
			continue
		}
		m, err := g.open(name)
		if err == nil && m == nil && name != image.Counters {
			continue // no rule has used this map; a new temporary rule uses it, and it starts empty
		}
		if err == nil && m == nil {
			continue // only the new program needs this map, so there is no state
		}
		if err == nil && isReplyTable(name) && m.ValueSize() != spec.Maps[name].ValueSize {
			m.Close() // a table of the smallest size, because the policy recorded no replies: a temporary rule that spares replies was added or removed
			continue
		}
		if err == nil && isLimitTable(name) && m.MaxEntries() != spec.Maps[name].MaxEntries {
			m.Close() // another version loaded tables of another size: the new ones start empty
			continue
		}
		if err == nil {
			err = g.shares(name)
		}
		if err != nil {
			return nil, err
		}
		kept[name] = m
		if name == image.Counters {
			spec.Maps[name].MaxEntries = m.MaxEntries()
		}
	}
	return loadFilled(im, spec, kept)
}

// isReplyTable reports whether a map belongs to the table of reply flows.
func isReplyTable(name string) bool { return name == image.ReplyFlows || name == image.ReplyFilter }

// isLimitTable reports whether a map has the counts of limits.
func isLimitTable(name string) bool { return name == image.Limits || name == image.Evictions }

// renewalPrefix is the prefix of the directory with the replacement of a generation's program.
const renewalPrefix = "renewal-"

func renewalName(n int) string { return renewalPrefix + strconv.Itoa(n) }

func renewalNumber(name string) (n int, ok bool) {
	n, err := strconv.Atoi(strings.TrimPrefix(name, renewalPrefix))
	return n, err == nil && n > 0 && renewalName(n) == name
}

// renewals lists the generations that have a renewal directory. There is at most one, which a process that died has left.
func (s *State) renewals() ([]int, error) {
	numbers, err := s.numbers(renewalNumber)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return numbers, err
}

// Renew replaces the program, the maps and the manifest of a generation under the same number, so that Rollback sees no difference. The generation
// must be the running one, or the one before it, which no device has. Notes are kept, except those that are given. At every moment each device has
// the old or the new program. If the change of one device fails, all devices get the old program back. If the process dies, the next Lock completes
// the change if all devices have the new program, and otherwise undoes it. The caller must hold the lock.
func (s *State) Renew(number int, p *Program, manifest []byte, notes map[Note][]byte) error {
	v, err := s.situation()
	if err != nil {
		return err
	}
	defer v.close()
	before, err := s.before(v.base)
	if err != nil {
		return err
	}
	devices := v.devices
	switch {
	case v.mixed || number != v.base && number != before:
		return ErrNotSettled
	case number == before:
		devices = nil
	}
	dir := s.path(renewalName(number))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("renewing generation %d: %w", number, err)
	}
	err = s.furnishRenewal(number, p, manifest, notes)
	if err == nil {
		fresh := &code{number: number, dir: dir, fresh: p, opened: map[Mode]*ebpf.Program{}}
		defer fresh.close()
		if s.has(number, pins[TC]) {
			_, err = fresh.program(TC)
		}
		if err == nil {
			err = s.putAll(devices, fresh)
		}
		if err != nil {
			if back := s.putBack(number, devices); back != nil { // a device still runs a program of the renewal, so its directory stays: the next Lock cleans up
				return fmt.Errorf("renewing generation %d: %w", number, errors.Join(err, back))
			}
		}
	}
	if err != nil {
		return errors.Join(fmt.Errorf("renewing generation %d: %w", number, err), s.dropRenewal(number))
	}
	return s.completeRenewal(number)
}

// furnishRenewal fills the directory of a renewal. It writes the manifest last.
func (s *State) furnishRenewal(number int, p *Program, manifest []byte, notes map[Note][]byte) error {
	old, dir := s.path(generationName(number)), s.path(renewalName(number))
	if err := p.pin(dir); err != nil {
		return err
	}
	if err := writeFormats(dir); err != nil {
		return err
	}
	texts := map[string][]byte{}
	for _, name := range []string{pinBefore, pinDevices, string(NoteSource), string(NoteCounted), string(NoteRepairs)} {
		text, err := readText(old+"/"+name, name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		texts[name] = text
	}
	for name, text := range notes {
		texts[string(name)] = text
	}
	for name, text := range texts {
		if err := pinText(dir+"/"+name, name, text); err != nil {
			return err
		}
	}
	return pinText(dir+"/"+pinManifest, pinManifest, manifest)
}

// putAll attaches the programs of the generation in from to the devices.
func (s *State) putAll(devices []*Device, from *code) error {
	for _, d := range devices {
		if err := s.put(d, from, true); err != nil {
			return err
		}
	}
	return nil
}

// putBack attaches the generation's own programs to devices.
func (s *State) putBack(number int, devices []*Device) error {
	own := s.code(number, nil)
	defer own.close()
	var errs []error
	for _, d := range devices {
		errs = append(errs, s.put(d, own, true))
	}
	return errors.Join(errs...)
}

// completeRenewal exchanges the directories of the renewal and of the generation, and removes the old content. The BPF file system exchanges
// directories atomically since Linux 5.16 (simple_rename of the kernel's fs/libfs.c).
func (s *State) completeRenewal(number int) error {
	err := unix.Renameat2(unix.AT_FDCWD, s.path(renewalName(number)), unix.AT_FDCWD, s.path(generationName(number)), unix.RENAME_EXCHANGE)
	if err != nil {
		return fmt.Errorf("renewing generation %d: %w", number, err)
	}
	return s.dropRenewal(number)
}

func (s *State) dropRenewal(number int) error {
	if err := s.checkNoLinks(renewalName(number)); err != nil {
		return err
	}
	if err := os.RemoveAll(s.path(renewalName(number))); err != nil {
		return fmt.Errorf("renewing generation %d: what is left of it: %w", number, err)
	}
	return nil
}

// endRenewals cleans up after a Renew that died. The caller must hold the lock.
func (s *State) endRenewals() error {
	numbers, err := s.renewals()
	if err != nil || len(numbers) == 0 {
		return err
	}
	devices, err := s.devices()
	if err != nil {
		return err
	}
	defer closeDevices(devices)
	for _, n := range numbers {
		if err := s.endRenewal(n, devices); err != nil {
			return err
		}
	}
	return nil
}

// endRenewal completes a renewal if all devices of the generation have the new program. Otherwise, if some devices have it, endRenewal gives all
// devices the old program.
func (s *State) endRenewal(number int, devices []*Device) error {
	own, err := s.ownPrograms(generationName(number))
	if err != nil {
		return err
	}
	renewed, err := s.ownPrograms(renewalName(number))
	if err != nil {
		return err
	}
	var on, have []*Device
	for _, d := range devices {
		switch {
		case slices.Contains(renewed, d.program):
			on, have = append(on, d), append(have, d)
		case slices.Contains(own, d.program):
			on = append(on, d)
		}
	}
	if len(have) > 0 && len(have) == len(on) {
		next := &code{number: number, dir: s.path(renewalName(number)), opened: map[Mode]*ebpf.Program{}}
		defer next.close()
		if err := s.putAll(on, next); err != nil {
			return err
		}
		return s.completeRenewal(number)
	}
	if len(have) > 0 {
		if err := s.putBack(number, on); err != nil {
			return err
		}
	}
	return s.dropRenewal(number)
}

// ownPrograms returns the IDs of the programs that are pinned in a directory of a generation.
func (s *State) ownPrograms(dir string) (ids []ebpf.ProgramID, err error) {
	for _, pin := range pins {
		id, err := pinnedID(s.path(dir, pin))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// SetManifest replaces the manifest of a record. The caller must hold the lock.
func (s *State) SetManifest(number int, manifest []byte) error {
	if !s.isRecord(number) {
		return fmt.Errorf("generation %d: there is no record of that number", number)
	}
	return replaceText(s.path(generationName(number), pinManifest), pinManifest, manifest)
}
