// SPDX-License-Identifier: Apache-2.0

// This file reads the packets that a policy copies to user space: those of rules with `sample`, and samples of all packets.

package sample

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// Capture reads the samples of the running policy's rules with `sample`. When another policy is applied, the Capture continues with that policy.
// Samples from the time between both policies are lost.
type Capture struct {
	in       control.Instance
	traffic  bool           // it reads samples of all packets; false: samples of rules
	only     []string       // names of rules; none: all
	program  ebpf.ProgramID // the program whose samples are read
	manifest *manifest.Manifest
	oneIn    map[uint32]uint32 // the sampling rates, by the slots of rules with samples
	chosen   map[uint32]bool   // the slots whose samples are wanted
	samples  *datapath.Samples
	looked   time.Time // when the running policy was last checked
	changed  bool      // whether that check found a change; the Capture follows it when all samples of the present program are read
	lost     uint64    // lost samples of earlier programs
	devices  map[int]string
}

// CaptureError is the error when there are no samples to read.
type CaptureError struct{ Problem, Remedy string }

func (e *CaptureError) Error() string { return e.Problem }

// Hint is the remedy.
func (e *CaptureError) Hint() string { return e.Remedy }

// lookForChange is how often a Capture checks whether another program runs. The check depends only on the clock, not on a pause of the packets,
// because a caller may call Read with a shorter timeout.
const lookForChange = time.Second

// mostOpened is how many times a Capture tries to open a program whose files disappear meanwhile. Each further attempt takes one more change.
const mostOpened = 5

// Open starts to read the samples of the named rules. Without names it reads the samples of all rules. It returns a *CaptureError when a named rule
// has no `sample`, or when no rule has.
func Open(ctx context.Context, in control.Instance, rules []string) (*Capture, error) {
	c := &Capture{in: in, only: rules, devices: map[int]string{}}
	return c, c.follow(ctx)
}

// Traffic starts to read the samples of all packets (`daemon: {sample: …}`). Only the daemon may use it. It returns datapath.ErrNoTraffic when the
// policy does not sample in XDP.
func Traffic(ctx context.Context, in control.Instance) (*Capture, error) {
	c := &Capture{in: in, traffic: true, devices: map[int]string{}}
	return c, c.follow(ctx)
}

// look reports whether another program may run than the one whose samples are read. The number of a generation would not tell: numbers are reused, and
// an exchange of sets or a temporary rule replaces the program of the same generation.
func (c *Capture) look(ctx context.Context) bool {
	c.looked = time.Now()
	running, err := c.in.RunningPolicy(ctx) // in the daemon usually answered from the cache
	return err != nil || running.Program != c.program
}

// follow switches the capture to the policy that runs now. That can be a later one than look has found, because the samples of the present program
// are read in between, and their reader may be slow.
func (c *Capture) follow(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		h, err := c.in.Handout(ctx, c.traffic)
		if err != nil {
			return err
		}
		if c.samples != nil && h.Program == c.program { // the other program that look has found runs no more
			return h.Close()
		}
		err = c.open(h)
		gone := errors.Is(err, os.ErrNotExist) || errors.Is(err, datapath.ErrNoSamples) || errors.Is(err, datapath.ErrNoTraffic)
		if !gone || attempt == mostOpened {
			return err
		}
	}
}

// open switches the capture to a program. The error is os.ErrNotExist, ErrNoSamples or ErrNoTraffic if the program was removed since Handout.
func (c *Capture) open(h *control.Handout) error {
	chosen, err := c.choose(h)
	if err != nil {
		return errors.Join(err, h.Close())
	}
	samples, err := h.Open()
	if errors.Is(err, datapath.ErrSamplesTaken) {
		return &CaptureError{err.Error(), "one capture at a time: end the other one"}
	}
	if err != nil {
		return err
	}
	err = c.end()
	c.program, c.manifest, c.oneIn, c.chosen, c.samples = h.Program, h.Manifest, h.OneIn, chosen, samples
	return err
}

// choose finds the slots of the wanted rules. For samples of all packets it returns nil.
func (c *Capture) choose(h *control.Handout) (map[uint32]bool, error) {
	if c.traffic {
		return nil, nil
	}
	if len(h.OneIn) == 0 {
		return nil, &CaptureError{fmt.Sprintf("no rule of %s hands out packets", h.Manifest.File),
			"give a rule `sample: 1/100`, which hands out one in 100 of its packets, and apply the policy (samples are taken in XDP)"}
	}
	slots := map[string]uint32{}
	for slot := range h.OneIn {
		slots[h.Manifest.Reason(slot)] = slot
	}
	chosen := map[uint32]bool{}
	for _, name := range c.only {
		slot, ok := slots[name]
		if !ok {
			return nil, &CaptureError{fmt.Sprintf("no rule %q of %s hands out packets", name, h.Manifest.File),
				fmt.Sprintf("these do: %s; `sample: 1/100` makes a rule do so", strings.Join(slices.Sorted(maps.Keys(slots)), ", "))}
		}
		chosen[slot] = true
	}
	for slot := range h.OneIn {
		chosen[slot] = chosen[slot] || len(c.only) == 0
	}
	return chosen, nil
}

// Rules returns the rules whose samples are read. The value of each rule is n if one in n packets is sampled.
func (c *Capture) Rules() map[string]uint32 {
	rules := map[string]uint32{}
	for slot, n := range c.oneIn {
		if c.chosen[slot] {
			rules[c.manifest.Reason(slot)] = n
		}
	}
	return rules
}

// Devices are the names of the filtered devices.
func (c *Capture) Devices() []string { return c.manifest.Devices }

// Read waits for a packet. Its frame is valid until the next Read.
func (c *Capture) Read(ctx context.Context) (Sample, error) {
	for {
		if !c.changed && time.Since(c.looked) >= lookForChange && ctx.Err() == nil {
			c.changed = c.look(ctx)
		}
		s, err := c.next(ctx)
		switch {
		case err == nil && (c.traffic || c.chosen[s.Slot]):
			return c.named(s), nil
		case ctx.Err() != nil:
			return Sample{}, ctx.Err()
		case errors.Is(err, context.DeadlineExceeded) && c.changed:
			c.changed, err = false, c.follow(ctx)
		case errors.Is(err, context.DeadlineExceeded):
			err = nil
		}
		if err != nil {
			return Sample{}, err
		}
	}
}

// named returns a sample with the names of the policy's rule and of the device.
func (c *Capture) named(s Sample) Sample {
	s.Device, s.Reason = c.device(s.Index), c.manifest.Reason(s.Slot)
	switch {
	case s.Code&image.Leaves != 0:
		s.Reason, s.Verdict = "", Leaves
		if s.Slot > 0 && slices.Contains(c.manifest.Devices, c.device(int(s.Slot))) {
			s.Verdict = Forwarded
		}
	case s.Code&image.Protected != 0:
		s.Verdict = Protected
	default:
		s.Verdict = ir.Verdict(s.Code).String()
	}
	return s
}

// Leaves is the verdict of a sample that left this host, about which no rule has decided. Forwarded is the verdict of a sample that left this host
// and had arrived on a device of the policy. Such a packet was also sampled on arrival.
const (
	Leaves    = "leaves"
	Forwarded = "forwarded"
)

// Protected is the verdict of a sample that goes to a protection. The rule passes it, and the protection may answer, pass or drop it.
const Protected = "protect"

// next waits for a sample. After a change of the program it does not wait: it returns only samples that already exist. The reason is that the check
// for a change waited for the apply to finish, and packets may have arrived before.
func (c *Capture) next(ctx context.Context) (Sample, error) {
	wait := lookForChange
	if c.changed {
		wait = 0
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return c.samples.Read(ctx)
}

// device is the name of the device with an index.
func (c *Capture) device(index int) string {
	name, ok := c.devices[index]
	if !ok {
		name = fmt.Sprintf("device %d", index)
		if d, err := net.InterfaceByIndex(index); err == nil {
			name = d.Name
		}
		c.devices[index] = name
	}
	return name
}

// Lost returns the number of samples that were lost because they arrived too fast.
func (c *Capture) Lost() (uint64, error) {
	if c.samples == nil {
		return c.lost, nil
	}
	lost, err := c.samples.Lost()
	return c.lost + lost, err
}

// end stops reading from a generation.
func (c *Capture) end() error {
	if c.samples == nil {
		return nil
	}
	lost, err := c.Lost()
	c.lost = lost
	err = errors.Join(err, c.samples.Close())
	c.samples = nil
	return err
}

// Close ends the capture.
func (c *Capture) Close() error { return c.end() }
