// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// SourceOptions are options of a source.
type SourceOptions struct {
	Flows    []Flow        // mixed packet by packet, by weight; at least one, at most eight
	Rate     float64       // packets per second; 0: as many as possible
	Count    uint64        // packets to send; 0: no bound
	Duration time.Duration // time to send for; 0: no bound
	Batch    int           // packets prepared and sent at a time; until they are sent, nothing else runs on the CPU; 0: 256
	CatchUp  float64       // the approximate highest rate of a late source, as a multiple of Rate; 0: 4
	Burst    int           // packets that leave together, like cards deliver them to a host, above 100,000 per second; 0: 1
	CPU      int           // to send on
	Urgent   bool          // keeps most other processes off this CPU; for measurements
	Apart    bool          // sends from a separate process, which is Eager and ignores Urgent; Count must be 0
	Seed     uint64        // of all random values; the same seed gives the same packets
}

// Source sends frames out of a device. They arrive at the receive thread of the device's peer.
type Source struct {
	device    *Device
	options   SourceOptions
	generator generator   // paces, counts, and sends or passes on to one of flows
	flows     []generator // of a mix
	frame     []byte
	took      time.Duration // of the last run

	parking  netlink.Link // see park
	attached link.Link
}

// maxFlows is FLOWS_MAX of bpf/lab.c.
const maxFlows = 8

// NewSource loads the programs that send o's flows out of d. The source must be closed before the lab or with it.
func (l *Lab) NewSource(d *Device, o SourceOptions) (*Source, error) {
	if len(o.Flows) == 0 || len(o.Flows) > maxFlows {
		return nil, fmt.Errorf("source: %d flows: must be 1 to %d", len(o.Flows), maxFlows)
	}
	if o.Rate < 0 || math.IsNaN(o.Rate) {
		return nil, fmt.Errorf("source: rate %g: must not be negative", o.Rate)
	}
	if o.CatchUp != 0 && !(o.CatchUp >= 1) {
		return nil, fmt.Errorf("source: catch up %g: must be at least 1", o.CatchUp)
	}
	if o.Burst < 0 {
		return nil, fmt.Errorf("source: bursts of %d: must not be negative", o.Burst)
	}
	if o.Batch < 0 || o.Batch > batch {
		return nil, fmt.Errorf("source: batch of %d: must be at most %d", o.Batch, batch)
	}
	if o.Apart && (o.Count > 0 || o.Rate > 0 && o.Rate < SmoothRate) {
		return nil, fmt.Errorf("source: a process of its own sends at least %d packets per second, without a count", int(SmoothRate))
	}
	s := &Source{device: d, options: o}
	err := s.load()
	if err == nil {
		err = s.park()
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("source at device %s: %w", d.Name, err)
	}
	l.onClose(s.Close)
	return s, nil
}

// load loads a generator for each flow and, if there are several, the program that mixes them.
func (s *Source) load() error {
	templates, err := s.templates()
	if err != nil {
		return err
	}
	if len(templates) == 1 {
		s.pace(&templates[0].flow)
		s.frame = templates[0].frame
		s.generator, err = loadGenerator(templates[0], &s.options.Flows[0], mixSeed(s.options.Seed, 0))
		return err
	}
	if err := s.unite(templates); err != nil {
		return err
	}
	for i, t := range templates {
		g, err := loadGenerator(t, &s.options.Flows[i], mixSeed(s.options.Seed, i))
		if err != nil {
			return fmt.Errorf("flow %d: %w", i, err)
		}
		s.flows = append(s.flows, g)
	}
	s.generator, err = s.loadMix()
	return err
}

// templates builds one frame of each flow.
func (s *Source) templates() (templates []*template, err error) {
	for i := range s.options.Flows {
		f := &s.options.Flows[i]
		if err := f.check(); err != nil {
			return nil, fmt.Errorf("flow %d: %w", i, err)
		}
		t, err := newTemplate(f, s.device)
		if err != nil {
			return nil, fmt.Errorf("flow %d: %w", i, err)
		}
		templates = append(templates, t)
	}
	return templates, nil
}

// Sent returns the number of packets sent so far. It may be called while the source runs.
func (s *Source) Sent() uint64 {
	return s.generator.sent()
}

// SentBy returns the number of packets of each flow sent so far.
func (s *Source) SentBy() []uint64 {
	if s.flows == nil {
		return []uint64{s.Sent()}
	}
	by := make([]uint64, len(s.flows))
	for i := range s.flows {
		by[i] = s.flows[i].sent()
	}
	return by
}

// Close unloads the programs. The source must not be running.
func (s *Source) Close() error {
	errs := []error{s.unpark(), s.generator.close()}
	for i := range s.flows {
		errs = append(errs, s.flows[i].close())
	}
	return errors.Join(errs...)
}

// Run sends until the count, the duration or ctx ends, whichever is first; the end of ctx is no error. It may be called again, and then sends the
// same amount again. It must not run twice at the same time.
func (s *Source) Run(ctx context.Context) error {
	if s.options.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.options.Duration)
		defer cancel()
	}
	run := s.runHere
	if s.options.Apart {
		run = s.runApart
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, with its CPU and namespace, ends with the goroutine
		done <- run(ctx)
	}()
	if err := <-done; err != nil {
		return fmt.Errorf("source at device %s: %w", s.device.Name, err)
	}
	return nil
}

// runHere sends on the calling thread, which must be locked. bpf_redirect finds the device in the namespace of this thread.
func (s *Source) runHere(ctx context.Context) error {
	if err := unix.Setns(int(s.device.Host.ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace: %w", err)
	}
	if err := pin(0, s.options.CPU); err != nil {
		return err
	}
	if s.options.Urgent {
		if err := hurry(0, Urgent); err != nil {
			return err
		}
	}
	before := s.Sent()
	limit := uint64(math.MaxUint64)
	if s.options.Count > 0 {
		limit = before + s.options.Count
	}
	start := time.Now()
	defer func() { s.took = time.Since(start) }()
	return s.send(ctx, before, limit)
}

// Took returns the length of the last run, which must have ended.
func (s *Source) Took() time.Duration { return s.took }

// sourceName is the name under which this program runs as a process that sends.
const sourceName = "floodwall-source"

// sourceFile is the descriptor of the generator in this process: the first after the standard ones.
const sourceFile = 3

// sendings are the runs of a generator in one system call.
type sendings struct {
	Frame  []byte
	Repeat uint32
	Batch  uint32
}

// run runs the generator. The library repeats interrupted calls; the limit in the program keeps the count right.
func (s *sendings) run(program *ebpf.Program) error {
	_, err := program.Run(&ebpf.RunOptions{Data: s.Frame, Repeat: s.Repeat, Flags: testLiveFrames, BatchSize: s.Batch})
	if err != nil {
		return fmt.Errorf("run generator: %w", err)
	}
	return nil
}

// sendings returns repeat runs of the source's generator.
func (s *Source) sendings(repeat uint64) *sendings {
	return &sendings{s.frame, uint32(repeat), uint32(cmp.Or(s.options.Batch, batch))}
}

// sourceMain does the work of the process that sends. When the process is killed, sending stops immediately.
func sourceMain() error {
	var s sendings
	if err := readInput(&s); err != nil {
		return err
	}
	program, err := ebpf.NewProgramFromFD(sourceFile)
	for err == nil {
		err = s.run(program)
	}
	return err
}

// runApart sends from a separate process until ctx ends.
func (s *Source) runApart(ctx context.Context) error {
	// The first packet is due when the process starts. Packets that are late by more than maxLag are not sent.
	if err := s.generator.NextDue.Set(uint64(0)); err != nil {
		return err
	}
	if err := s.generator.Limit.Set(uint64(math.MaxUint64)); err != nil {
		return err
	}
	fd, err := unix.FcntlInt(uintptr(s.generator.Program.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	program := os.NewFile(uintptr(fd), "generator")
	defer program.Close()
	start := time.Now()
	defer func() { s.took = time.Since(start) }()
	err = s.device.Host.play(ctx, role{
		name: sourceName, cpu: s.options.CPU, priority: Eager, input: s.sendings(s.chunk()), files: []*os.File{program},
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// parked numbers the devices that programs are parked on.
var parked atomic.Uint64

// park attaches the generator to a device that is down, where it never runs. The kernel enters every program that is attached or test-run into one
// dispatcher, and waits for an RCU grace period when that list changes (kernel kernel/bpf/dispatcher.c). So a test run of an unattached program takes
// 20 ms to begin and end. With a parked one it takes 10 µs.
func (s *Source) park() error {
	host := s.device.Host
	attrs := netlink.NewLinkAttrs()
	attrs.Name = fmt.Sprintf("park%d", parked.Add(1))
	if err := host.links.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: attrs.Name + "p"}); err != nil {
		return fmt.Errorf("new device %s: %w", attrs.Name, err)
	}
	device, err := host.links.LinkByName(attrs.Name)
	if err != nil {
		return fmt.Errorf("device %s: %w", attrs.Name, err)
	}
	s.parking = device
	err = host.Do(func() (err error) {
		s.attached, err = link.AttachXDP(link.XDPOptions{
			Program: s.generator.Program, Interface: device.Attrs().Index, Flags: link.XDPGenericMode,
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("park generator: %w", err)
	}
	return nil
}

// unpark removes the device and with it the attachment.
func (s *Source) unpark() error {
	var errs []error
	if s.attached != nil {
		errs = append(errs, s.attached.Close())
	}
	if s.parking != nil {
		errs = append(errs, s.device.Host.links.LinkDel(s.parking))
	}
	s.attached, s.parking = nil, nil
	return errors.Join(errs...)
}
