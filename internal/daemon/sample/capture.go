// This file reads the packets that a policy copies to user space: those of its rules with `sample`, and samples of all packets.

package sample

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
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

// Capture reads the samples of rules with `sample` of the policy that runs. When another policy is applied, it goes on with that one;
// samples of the moments in between are lost.
type Capture struct {
	in       control.Instance
	traffic  bool           // samples of all packets, not of rules
	only     []string       // names of rules; none: all
	program  ebpf.ProgramID // that is open
	manifest *manifest.Manifest
	oneIn    map[uint32]uint32 // by the slots of rules that hand out samples
	chosen   map[uint32]bool   // those that are asked for
	samples  *datapath.Samples
	looked   time.Time // when it looked last what runs
	found    *change   // that is followed when all samples of what ran before are read
	lost     uint64    // in programs before
	devices  map[int]string
}

// change is what runs in place of what is open.
type change struct {
	to  *control.Handout
	err error // why there is nothing, such as datapath.ErrNotLoaded
}

// Packet is a packet that a rule handed out. Its frame is valid until the next Read.
type Packet struct {
	datapath.Sample
	Rule    string
	Verdict string
	Device  string // that it came from
}

// CaptureError says why there is nothing to capture.
type CaptureError struct{ Problem, Remedy string }

func (e *CaptureError) Error() string { return e.Problem }

// Hint is the remedy.
func (e *CaptureError) Hint() string { return e.Remedy }

// lookForChange is how often a Capture looks whether another program runs. It does so by the clock, not when no packet comes: its caller may
// give each Read less time than that.
const lookForChange = time.Second

// Open begins to read what the rules of these names hand out, or all rules if none are named. It is a CaptureError
// when a rule does not, or no rule does.
func Open(ctx context.Context, in control.Instance, rules []string) (*Capture, error) {
	c := &Capture{in: in, only: rules, devices: map[int]string{}}
	return c, c.follow(c.look(ctx))
}

// Traffic begins to read the samples that the policy has taken of all packets (`daemon: {sample: …}`). It is for the daemon. It returns
// datapath.ErrNoTraffic when the policy has none taken in XDP.
func Traffic(ctx context.Context, in control.Instance) (*Capture, error) {
	c := &Capture{in: in, traffic: true, devices: map[int]string{}}
	return c, c.follow(c.look(ctx))
}

// look finds the policy that runs; nil if it is open already.
func (c *Capture) look(ctx context.Context) *change {
	c.looked = time.Now()
	known := c.program
	if c.samples == nil {
		known = 0
	}
	h, err := c.in.Handout(ctx, c.traffic, known)
	if h == nil && err == nil {
		return nil
	}
	return &change{h, err}
}

// follow goes on with what a look found.
func (c *Capture) follow(found *change) error {
	if found.err != nil {
		return found.err
	}
	h := found.to
	if err := c.end(); err != nil {
		return errors.Join(err, h.Close())
	}
	c.program, c.manifest, c.oneIn = h.Program, h.Manifest, h.OneIn
	if !c.traffic {
		if err := c.choose(); err != nil {
			return errors.Join(err, h.Close())
		}
	}
	var err error
	c.samples, err = h.Open()
	if errors.Is(err, datapath.ErrSamplesTaken) {
		return &CaptureError{err.Error(), "one capture at a time: end the other one"}
	}
	return err
}

// choose finds the slots of the rules that are asked for.
func (c *Capture) choose() error {
	if len(c.oneIn) == 0 {
		return &CaptureError{fmt.Sprintf("no rule of %s hands out packets", c.manifest.File),
			"give a rule `sample: 1/100`, which hands out one in 100 of its packets, and apply the policy (samples are taken in XDP)"}
	}
	slots := map[string]uint32{}
	for slot := range c.oneIn {
		slots[c.manifest.Reason(slot)] = slot
	}
	c.chosen = map[uint32]bool{}
	for _, name := range c.only {
		slot, ok := slots[name]
		if !ok {
			return &CaptureError{fmt.Sprintf("no rule %q of %s hands out packets", name, c.manifest.File),
				fmt.Sprintf("these do: %s; `sample: 1/100` makes a rule do so", strings.Join(slices.Sorted(maps.Keys(slots)), ", "))}
		}
		c.chosen[slot] = true
	}
	for slot := range c.oneIn {
		c.chosen[slot] = c.chosen[slot] || len(c.only) == 0
	}
	return nil
}

// Rules are those that are captured, each with the number of packets of which it hands out one.
func (c *Capture) Rules() map[string]uint32 {
	rules := map[string]uint32{}
	for slot, n := range c.oneIn {
		if c.chosen[slot] {
			rules[c.manifest.Reason(slot)] = n
		}
	}
	return rules
}

// Devices are the names of the devices that are filtered.
func (c *Capture) Devices() []string { return c.manifest.Devices }

// Read waits for a packet.
func (c *Capture) Read(ctx context.Context) (Packet, error) {
	for {
		if c.found == nil && time.Since(c.looked) >= lookForChange && ctx.Err() == nil {
			c.found = c.look(ctx)
		}
		s, err := c.next(ctx)
		switch {
		case err == nil && (c.traffic || c.chosen[s.Slot]):
			p := Packet{s, c.manifest.Reason(s.Slot), ir.Verdict(s.Verdict &^ (image.Protected | image.Leaves)).String(), c.device(s.Device)}
			switch {
			case s.Verdict&image.Leaves != 0:
				p.Rule, p.Verdict = "", Leaves
				if s.Slot > 0 && slices.Contains(c.manifest.Devices, c.device(int(s.Slot))) {
					p.Verdict = Forwarded
				}
			case s.Verdict&image.Protected != 0:
				p.Verdict = Protected
			}
			return p, nil
		case ctx.Err() != nil:
			return Packet{}, ctx.Err()
		case errors.Is(err, context.DeadlineExceeded) && c.found == nil:
			err = nil
		case errors.Is(err, context.DeadlineExceeded):
			found := c.found
			c.found, err = nil, c.follow(found)
		}
		if err != nil {
			return Packet{}, err
		}
	}
}

// Leaves is the verdict of a sample that left this host. Nothing has decided about it. Forwarded is that of one which came from a device of the
// policy: it is a sample of what arrived, too.
const (
	Leaves    = "leaves"
	Forwarded = "forwarded"
)

// Protected is the verdict of a sample that a protection has decided about: the rule passes it, and the protection may have answered,
// passed or dropped it.
const Protected = "protect"

// next waits for a sample. After a change it takes only what is there: the look had to wait for the apply, before which packets may have come.
func (c *Capture) next(ctx context.Context) (datapath.Sample, error) {
	wait := lookForChange
	if c.found != nil {
		wait = 0
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return c.samples.Read(ctx)
}

// device is the name of a device that has this index.
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

// Lost counts the packets that were to be handed out and were not, because they came too fast.
func (c *Capture) Lost() (uint64, error) {
	if c.samples == nil {
		return c.lost, nil
	}
	lost, err := c.samples.Lost()
	return c.lost + lost, err
}

// end ends the reading from a generation.
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
func (c *Capture) Close() error {
	var err error
	if c.found != nil && c.found.to != nil {
		err = c.found.to.Close()
	}
	return errors.Join(err, c.end())
}
