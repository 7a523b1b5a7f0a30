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

// ErrNotSettled is returned by Renew if the generation neither runs on all devices nor is the previous one, or during a
// trial.
var ErrNotSettled = errors.New("another policy runs by now, or one is on trial")

// lasting are the maps that a program shares with its replacement in the same generation: all that packets, limits,
// bans and readers write. All other maps are made from the policy and its lists.
var lasting = []string{
	image.Counters, image.Limits, image.Evictions, image.Dynamic, image.DynamicInfo, image.DynamicTexts, image.DynamicWhy, image.DynamicLengths, image.Verified, image.GameAnswers,
	image.Flows, image.FlowFilter, image.CookiesSent, image.SynKeys, image.ProtectionStates, image.HostEnds, image.Offences, image.Samples, image.Samplers,
	image.Traffic, image.TrafficSamplers, image.TrafficShares, image.ReplyFlows, image.ReplyFilter, image.ReplyCounts, image.FloodStates,
	image.RakNetServers, image.AnsweredNames, image.FloodedZones, image.ZoneTimes,
}

// LoadRenewal loads an image of the same policy with other lists, which takes over all that the generation has
// collected. Constants that describe the layout of these maps must equal those of the generation.
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
		if spec.Maps[name] == nil || !notes && (name == image.ReplyFlows || name == image.ReplyFilter) {
			continue
		}
		m, err := g.open(name)
		if err == nil && m == nil && name != image.Counters {
			continue // no rule led to it: a temporary rule that is new does, and it begins empty
		}
		if err == nil && m == nil {
			continue // only what takes its place needs it, so nothing has been collected
		}
		if err == nil && isLimitTable(name) && m.MaxEntries() != spec.Maps[name].MaxEntries {
			m.Close() // of a version with other tables: they begin empty
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

// isLimitTable reports whether a map has what limits have counted.
func isLimitTable(name string) bool { return name == image.Limits || name == image.Evictions }

// renewalPrefix begins the name of the directory of what is to take the place of a generation's program.
const renewalPrefix = "renewal-"

func renewalName(n int) string { return renewalPrefix + strconv.Itoa(n) }

func renewalNumber(name string) (n int, ok bool) {
	n, err := strconv.Atoi(strings.TrimPrefix(name, renewalPrefix))
	return n, err == nil && n > 0 && renewalName(n) == name
}

// renewals lists the generations that have a renewal: one, of a process that died.
func (s *State) renewals() ([]int, error) {
	numbers, err := s.numbers(renewalNumber)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return numbers, err
}

// Renew puts a program, its maps and a manifest into the place of those of the generation that runs, or of the one before it, which no
// device has, under the same number: to who rolls back nothing has changed. Notes are kept, but for those that are given. Each device has the old program or the new
// one at every moment. When a device refuses, all get the old one back. What a process leaves that dies is for the next Lock
// to end: the old one, unless all devices had the new one. The caller holds the lock.
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
		if err = s.putAll(devices, fresh); err != nil {
			if back := s.putBack(number, devices); back != nil { // a device runs what is pinned there: the next lock ends it
				return fmt.Errorf("renewing generation %d: %w", number, errors.Join(err, back))
			}
		}
	}
	if err != nil {
		return errors.Join(fmt.Errorf("renewing generation %d: %w", number, err), s.dropRenewal(number))
	}
	return s.completeRenewal(number)
}

// furnishRenewal fills the directory. The manifest is last.
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

// putAll gives devices the programs of code.
func (s *State) putAll(devices []*Device, from *code) error {
	for _, d := range devices {
		if err := s.put(d, from, true); err != nil {
			return err
		}
	}
	return nil
}

// putBack gives devices the programs that the generation has.
func (s *State) putBack(number int, devices []*Device) error {
	own := s.code(number, nil)
	defer own.close()
	var errs []error
	for _, d := range devices {
		errs = append(errs, s.put(d, own, true))
	}
	return errors.Join(errs...)
}

// completeRenewal has the renewal be the generation, and removes what that was. Directories of the BPF file system change places
// at once (simple_rename of the kernel's fs/libfs.c, since 5.16).
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

// endRenewals ends what a Renew has left that died. The caller holds the lock.
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

// endRenewal completes a renewal that all devices of the generation have. Else it gives all the program of before, if any has
// another.
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

// ownPrograms are the numbers of the programs that are pinned in a directory of a generation.
func (s *State) ownPrograms(dir string) (ids []ebpf.ProgramID, err error) {
	for _, pin := range []string{pinNative, pinLinear} {
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

// SetManifest replaces the manifest of a generation without a program, a record. The caller holds the lock.
func (s *State) SetManifest(number int, manifest []byte) error {
	if !s.isRecord(number) {
		return fmt.Errorf("generation %d: there is no record of that number", number)
	}
	return replaceText(s.path(generationName(number), pinManifest), pinManifest, manifest)
}
