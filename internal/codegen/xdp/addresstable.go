package xdp

import (
	"github.com/floodwall/floodwall/internal/addrs"
	"github.com/floodwall/floodwall/internal/xdp"
)

// table4 adds the IPv4 table to an image.
func (a *addresses) table4(p *component) {
	t := a.table.V4
	if t.Empty() {
		return
	}
	p.constants["filter4_shift"] = uint32(t.Shift)
	p.constants["filter4_mask"] = uint32(t.FilterBytes()/8 - 1)
	p.constants["have_background4"] = t.HasBackground()
	p.constants["have_lines4"] = t.Lines > 0
	p.constants["hosts4_buckets"] = uint32(t.HostBuckets)
	p.constants["hosts4_seed"] = t.Seed
	p.shapes[xdp.Filter4] = xdp.Shape{ValueSize: uint32(t.FilterBytes()), Entries: 1}
	p.shapes[xdp.Index4] = xdp.Shape{ValueSize: addrs.IndexBytes, Entries: 1}
	p.shapes[xdp.Background4] = xdp.Shape{ValueSize: addrs.BackgroundBytes, Entries: 1}
	p.shapes[xdp.Lines4] = xdp.Shape{ValueSize: addrs.LineBytes, Entries: uint32(max(t.Lines, 1))}
	p.shapes[xdp.Full4] = xdp.Shape{ValueSize: addrs.FullBlockBytes, Entries: uint32(max(t.FullBlocks, 1))}
	p.shapes[xdp.Hosts4] = xdp.Shape{ValueSize: addrs.HostBucketBytes, Entries: uint32(max(t.HostBuckets, 1))}
	p.then(func(memory map[string][]byte) error {
		return t.Encode(addrs.V4Memory{
			Filter:     memory[xdp.Filter4],
			Index:      memory[xdp.Index4],
			Background: memory[xdp.Background4],
			Lines:      memory[xdp.Lines4],
			Full:       memory[xdp.Full4],
			Hosts:      memory[xdp.Hosts4],
		})
	})
}

// table6 adds the IPv6 table to an image.
func (a *addresses) table6(p *component) {
	t := a.table.V6
	if t.Empty() {
		return
	}
	var lengths [129]uint8
	buckets := t.BucketsBytes() / addrs.BucketBytes
	p.constants["lengths6_count"] = uint32(copy(lengths[:], t.Lengths))
	p.constants["lengths6"] = lengths
	p.constants["buckets6_mask"] = uint32(buckets - 1)
	p.constants["buckets6_seed"] = t.Seed
	p.shapes[xdp.Buckets6] = xdp.Shape{ValueSize: addrs.BucketBytes, Entries: uint32(buckets)}
	p.shapes[xdp.Filter6] = xdp.Shape{ValueSize: addrs.Filter6Bytes, Entries: 1}
	p.then(func(memory map[string][]byte) error {
		return t.Encode(addrs.V6Memory{Buckets: memory[xdp.Buckets6], Filter: memory[xdp.Filter6]})
	})
}

// then adds what fills maps.
func (p *component) then(fill func(map[string][]byte) error) {
	before := p.fill
	p.fill = func(memory map[string][]byte) error {
		if before != nil {
			if err := before(memory); err != nil {
				return err
			}
		}
		return fill(memory)
	}
}
