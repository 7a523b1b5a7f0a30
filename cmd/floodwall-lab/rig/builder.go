// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/lab"
)

// Builder collects the rows of a table and owns the sites and programs that they need.
type Builder struct {
	*Session
	Lab   *lab.Lab
	Flow  lab.Flow
	Table RateTable
	XDP   *Site // the site of all XDP programs
	Sites int
	Owned []func() error
}

// Close releases everything that the builder owns, in reverse order.
func (b *Builder) Close() {
	for _, fn := range slices.Backward(b.Owned) {
		_ = fn() // if closing fails, the end of the process closes the descriptor
	}
}

// Own makes Close unload a program.
func (b *Builder) Own(p *ebpf.Program) *ebpf.Program {
	b.Owned = append(b.Owned, p.Close)
	return p
}

// NewSite builds another site.
func (b *Builder) NewSite() (*Site, error) {
	b.Sites++
	return NewSite(b.Lab, b.Sites)
}

// Connect builds another site. The parameter out has the options of the attacker's end, and in the options of the server's end.
func (b *Builder) Connect(out, in lab.EndOptions) (*Site, error) {
	b.Sites++
	return ConnectSite(b.Lab, b.Sites, out, in)
}

// TempDir makes a directory that exists until the builder is closed.
func (b *Builder) TempDir() (string, error) {
	dir, err := os.MkdirTemp("", "floodwall-bench-")
	b.Owned = append(b.Owned, func() error { return os.RemoveAll(dir) })
	return dir, err
}

// Add adds a row.
func (b *Builder) Add(r *Row) *Row {
	if r.Flows == nil {
		r.Flows = []lab.Flow{b.Flow}
	}
	b.Table.Rows = append(b.Table.Rows, r)
	return r
}

// Limits builds the site of XDP programs. It also adds the rows of three programs for comparison: one never looks at the frame, one reads a byte, and
// one does the minimum of a filter.
func (b *Builder) Limits() (err error) {
	if b.XDP, err = b.NewSite(); err != nil {
		return err
	}
	empty, err := LoadInstructions("empty", asm.Mov.Imm(asm.R0, XDPDrop), asm.Return())
	if err != nil {
		return err
	}
	b.Add(&Row{Name: "empty", Label: "empty XDP_DROP, no look at the frame", Subject: Subject{b.XDP, b.Own(empty)}})
	touch, err := LoadPeerProgram(Touch)
	if err != nil {
		return err
	}
	b.Add(&Row{Name: "touch", Label: "XDP_DROP after reading one byte", Subject: Subject{b.XDP, b.Own(touch)}})
	least, err := LoadPeerProgram(leastFor(&b.Flow))
	if err != nil {
		return err
	}
	b.Table.least = b.Add(&Row{Name: "least", Label: "the least that a filter does", Subject: Subject{b.XDP, b.Own(least)}})
	return nil
}

// Measure measures the table twice: with source and receiver on separate cores, and with both on one core.
func (b *Builder) Measure(ctx context.Context) error {
	b.Table.keep(b.Wants)
	two, one := &b.Table, b.Table.On(OneCore)
	two.Notes = append(two.Notes,
		"On veth, the first access to a frame fetches it from the sender's core. That hides the work of a short program, and more",
		"of a long one the longer it is.")
	one.Notes = append(one.Notes,
		"The receive thread's own time per packet, and its inverse. The frame is in the core's cache, much as one is that a network",
		"card has written there.")
	if err := two.Measure(ctx, b.Session); err != nil {
		return err
	}
	return one.Measure(ctx, b.Session)
}

// LoadInstructions loads an XDP program.
func LoadInstructions(name string, ins ...asm.Instruction) (*ebpf.Program, error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.XDP, AttachType: ebpf.AttachXDP, License: "GPL", Instructions: ins})
	if err != nil {
		return nil, fmt.Errorf("program %s: %w", name, err)
	}
	return p, nil
}

// The return values of XDP programs: enum xdp_action of linux/bpf.h.
const (
	XDPDrop = 1
	XDPPass = 2
	XDPTX   = 3
)
