package bench

import (
	"context"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/lab"
)

// builder collects the rows of a table, with what they need.
type builder struct {
	*session
	lab   *lab.Lab
	flow  lab.Flow
	table rateTable
	xdp   *site // of all XDP programs
	sites int
	owned []func() error
}

func (b *builder) close() {
	for _, fn := range slices.Backward(b.owned) {
		_ = fn() // a descriptor that cannot be closed is closed with the process
	}
}

// own has a program be unloaded with the builder.
func (b *builder) own(p *ebpf.Program) *ebpf.Program {
	b.owned = append(b.owned, p.Close)
	return p
}

// site builds another site.
func (b *builder) site() (*site, error) {
	b.sites++
	return newSite(b.lab, b.sites)
}

// add adds a row.
func (b *builder) add(r *rate) *rate {
	if r.flows == nil {
		r.flows = []lab.Flow{b.flow}
	}
	b.table.rows = append(b.table.rows, r)
	return r
}

// limits builds the site of XDP programs, and the rows of the two programs that are the least that there can be.
func (b *builder) limits() (err error) {
	if b.xdp, err = b.site(); err != nil {
		return err
	}
	empty, err := loadAsm("empty", asm.Mov.Imm(asm.R0, xdpDrop), asm.Return())
	if err != nil {
		return err
	}
	touch, err := loadPeer(touch, nil, nil)
	if err != nil {
		return err
	}
	b.table.empty = b.add(&rate{
		name: "empty", label: "empty XDP_DROP (the limit)", subject: subject{b.xdp, b.own(empty)},
	})
	b.table.touch = b.add(&rate{
		name: "one-octet", label: "XDP_DROP after reading one octet", subject: subject{b.xdp, b.own(touch.program)},
	})
	return nil
}

// measure takes the table on a core each and on one core.
func (b *builder) measure(ctx context.Context) error {
	two, one := &b.table, b.table.on(oneCore)
	two.notes = append(two.notes,
		"Of one octet: the share of the rate of a program that reads one octet of each frame. On veth, the first touch",
		"of a frame fetches it from the sender's core, which every program that looks at packets pays.")
	one.notes = append(one.notes,
		"The receive thread's own time per packet, and its inverse. The frame is in the core's cache, much as one is",
		"that a network card has written there: the difference between rows is what the programs cost. The bars are not",
		"for this table: the empty program's time is that of the lab's link alone.")
	if err := two.measure(ctx, b.session); err != nil {
		return err
	}
	return one.measure(ctx, b.session)
}

// loadAsm loads an XDP program.
func loadAsm(name string, ins ...asm.Instruction) (*ebpf.Program, error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.XDP, License: "GPL", Instructions: ins})
	if err != nil {
		return nil, fmt.Errorf("program %s: %w", name, err)
	}
	return p, nil
}

// xdpDrop is XDP_DROP of linux/bpf.h.
const xdpDrop = 1
