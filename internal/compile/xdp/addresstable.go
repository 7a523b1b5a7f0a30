// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/addrs"
)

// table4 adds the IPv4 table to an image.
func (a *addresses) table4(p *component) {
	t := a.table.V4
	if t.Empty() {
		return
	}
	h := &t.Hosts
	p.constants["filter4_shift"] = uint32(t.Shift)
	p.constants["filter4_mask"] = filter4Mask(t)
	p.constants["filter4_hosts"] = t.FilterHosts
	p.constants["have_background4"] = t.HasBackground()
	p.constants["have_lines4"] = t.Lines > 0
	p.constants["hosts4_key"] = h.Key
	p.constants["hosts4_factor"] = h.Factor
	p.constants["hosts4_narrow"] = uint32(h.Narrow)
	p.constants["hosts4_wide"] = uint32(h.Wide)
	p.constants["hosts4_class"] = uint32(h.Class)
	p.constants["hosts4_filter"] = uint32(h.Filter)
	p.constants["hosts4_follow"] = a.follow4(t)
	shape := func(name string, size, entries int) {
		if entries > 0 {
			p.shapes[name] = image.Shape{ValueSize: uint32(size), Entries: uint32(entries)}
		}
	}
	shape(image.Filter4, t.FilterBytes(), oneIf(t.FilterBytes() > 0))
	shape(image.Index4, addrs.IndexBytes, oneIf(t.Lines > 0))
	shape(image.Background4, addrs.BackgroundBytes, oneIf(t.HasBackground()))
	shape(image.Lines4, addrs.LineBytes, t.Lines)
	shape(image.Full4, addrs.FullBlockBytes, t.FullBlocks)
	shape(image.Hosts4, addrs.HostLineBytes, h.Lines())
	shape(image.HostClasses4, addrs.HostClassesBytes, h.ClassLines())
	shape(image.HostFilter4, h.FilterBytes(), oneIf(h.Filter > 0))
	p.then(func(memory map[string][]byte) error {
		return t.Encode(addrs.V4Memory{
			Filter:      memory[image.Filter4],
			Index:       memory[image.Index4],
			Background:  memory[image.Background4],
			Lines:       memory[image.Lines4],
			Full:        memory[image.Full4],
			Hosts:       memory[image.Hosts4],
			HostClasses: memory[image.HostClasses4],
			HostFilter:  memory[image.HostFilter4],
		})
	})
}

// filter4Mask returns the mask for the index of a word in the bitmap. It returns 0 if there is no bitmap.
func filter4Mask(t *addrs.Table4) uint32 { return uint32(max(t.FilterBytes()/8-1, 0)) }

// follow4 reports whether the filter of hosts is used depending on the result of the last lookup. It is not if each packet looks up two addresses,
// because the last lookup then predicts nothing.
func (a *addresses) follow4(t *addrs.Table4) bool {
	return t.Hosts.Follow() && a.srcClass != a.dstClass
}

// oneIf returns the number of entries of a map: 1 if the map is needed, otherwise 0.
func oneIf(needed bool) int {
	if needed {
		return 1
	}
	return 0
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
	p.shapes[image.Buckets6] = image.Shape{ValueSize: addrs.BucketBytes, Entries: uint32(buckets)}
	p.shapes[image.Filter6] = image.Shape{ValueSize: addrs.Filter6Bytes, Entries: 1}
	p.then(func(memory map[string][]byte) error {
		return t.Encode(addrs.V6Memory{Buckets: memory[image.Buckets6], Filter: memory[image.Filter6]})
	})
}

// then adds a function that fills maps. It is called after the functions that were added before it.
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
