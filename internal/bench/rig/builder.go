package rig

import (
	"context"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/bench/peer"
	"github.com/floodwall/floodwall/internal/lab"
)

// Builder collects the rows of a table, with what they need.
type Builder struct {
	*Session
	Lab   *lab.Lab
	Flow  lab.Flow
	Table RateTable
	XDP   *Site // of all XDP programs
	Sites int
	Owned []func() error
}

// Close lets go of all that the builder owns, the last first.
func (b *Builder) Close() {
	for _, fn := range slices.Backward(b.Owned) {
		_ = fn() // a descriptor that cannot be closed is closed with the process
	}
}

// Own has a program be unloaded with the builder.
func (b *Builder) Own(p *ebpf.Program) *ebpf.Program {
	b.Owned = append(b.Owned, p.Close)
	return p
}

// NewSite builds another site.
func (b *Builder) NewSite() (*Site, error) {
	b.Sites++
	return NewSite(b.Lab, b.Sites)
}

// Add adds a row.
func (b *Builder) Add(r *Rate) *Rate {
	if r.Flows == nil {
		r.Flows = []lab.Flow{b.Flow}
	}
	b.Table.Rows = append(b.Table.Rows, r)
	return r
}

// Limits builds the site of XDP programs, and the rows of the two programs that are the least that there can be.
func (b *Builder) Limits() (err error) {
	if b.XDP, err = b.NewSite(); err != nil {
		return err
	}
	empty, err := LoadInstructions("empty", asm.Mov.Imm(asm.R0, XDPDrop), asm.Return())
	if err != nil {
		return err
	}
	touch, err := peer.LoadProgram(peer.Touch)
	if err != nil {
		return err
	}
	b.Table.empty = b.Add(&Rate{
		Name: "empty", Label: "empty XDP_DROP (the limit)", Subject: Subject{b.XDP, b.Own(empty)},
	})
	b.Table.touch = b.Add(&Rate{
		Name: "one-octet", Label: "XDP_DROP after reading one octet", Subject: Subject{b.XDP, b.Own(touch)},
	})
	return nil
}

// Measure takes the table on a core each and on one core.
func (b *Builder) Measure(ctx context.Context) error {
	two, one := &b.Table, b.Table.On(OneCore)
	two.Notes = append(two.Notes,
		"Of one octet: the share of the rate of a program that reads one octet of each frame. On veth, the first touch",
		"of a frame fetches it from the sender's core, for which a program waits the longer the more it does.")
	one.Notes = append(one.Notes,
		"The receive thread's own time per packet, and its inverse. The frame is in the core's cache, much as one is",
		"that a network card has written there: the difference between rows is what the programs cost. The bars are not",
		"for this table: the empty program's time is that of the lab's link alone.")
	if err := two.Measure(ctx, b.Session); err != nil {
		return err
	}
	return one.Measure(ctx, b.Session)
}

// LoadInstructions loads an XDP program.
func LoadInstructions(name string, ins ...asm.Instruction) (*ebpf.Program, error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.XDP, License: "GPL", Instructions: ins})
	if err != nil {
		return nil, fmt.Errorf("program %s: %w", name, err)
	}
	return p, nil
}

// What XDP programs return: enum xdp_action of linux/bpf.h.
const (
	XDPDrop = 1
	XDPPass = 2
	XDPTX   = 3
)
