// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

var native = binary.NativeEndian

// Offsets within a line, in bytes.
const (
	lineInside  = 32
	lineOutside = 34
	lineFull    = 36
)

// V4Memory is the memory of an IPv4 table. It may be larger than the table.
type V4Memory struct {
	Filter      []byte // Table4.FilterBytes
	Index       []byte // IndexBytes if there are lines
	Background  []byte // BackgroundBytes if a background class is not 0
	Lines       []byte // LineBytes for each line
	Full        []byte // FullBlockBytes for each full block
	Hosts       []byte // HostLineBytes for each line of hosts
	HostClasses []byte // HostClassesBytes for each narrow line, if the hosts are of several classes
	HostFilter  []byte // Hosts4.FilterBytes
}

// memoryPart is a part of the memory, and the number of bytes that the table needs there.
type memoryPart struct {
	name string
	part *[]byte
	need int
}

func (t *Table4) parts(m *V4Memory) []memoryPart {
	only := func(needed bool, size int) int {
		if needed {
			return size
		}
		return 0
	}
	return []memoryPart{
		{"filter", &m.Filter, t.FilterBytes()},
		{"index", &m.Index, only(t.Lines > 0, IndexBytes)},
		{"background", &m.Background, only(t.behind, BackgroundBytes)},
		{"lines", &m.Lines, t.Lines * LineBytes},
		{"full blocks", &m.Full, t.FullBlocks * FullBlockBytes},
		{"hosts", &m.Hosts, t.Hosts.Lines() * HostLineBytes},
		{"classes of hosts", &m.HostClasses, t.Hosts.ClassLines() * HostClassesBytes},
		{"filter of hosts", &m.HostFilter, t.Hosts.FilterBytes()},
	}
}

// NewMemory allocates memory for the table. The datapath uses mapped BPF arrays instead.
func (t *Table4) NewMemory() (m V4Memory) {
	for _, p := range t.parts(&m) {
		*p.part = make([]byte, p.need)
	}
	return m
}

// Encode writes the table to memory that holds zeros.
func (t *Table4) Encode(m V4Memory) error {
	for _, p := range t.parts(&m) {
		if len(*p.part) < p.need {
			return fmt.Errorf("memory for the %s has %d bytes, the table needs %d", p.name, len(*p.part), p.need)
		}
		*p.part = (*p.part)[:p.need]
	}
	t.encodeBlocks(m)
	if t.Hosts.Count > 0 {
		t.Hosts.encode(m.hosts(), t.hosts)
	}
	return nil
}

// hosts returns the memory of the hash of hosts.
func (m *V4Memory) hosts() hostMemory { return hostMemory{m.Hosts, m.HostClasses, m.HostFilter} }

// encodeBlocks writes all parts of the table except the hosts.
func (t *Table4) encodeBlocks(m V4Memory) {
	if t.FilterBytes() > 0 {
		t.encodeFilter(m.Filter)
	}
	if t.behind {
		for net, class := range t.background {
			native.PutUint16(m.Background[2*net:], class)
		}
	}
	if t.Lines == 0 {
		return
	}
	t.encodeIndex(m.Index)
	lines := lineWriter{present: t.present, lines: m.Lines, full: m.Full}
	// Lines of /24s after the last run are all zeros.
	blockSpans(t.runs, func(s blockSpan) {
		if s.runs == nil || !t.isSparse(s.first) {
			lines.span(s)
		}
	}, func(first, end uint32) { lines.uniform(first, end, 0) })
}

func (t *Table4) encodeFilter(filter []byte) {
	var word uint64
	at := uint32(0)
	filtered := t.blocks
	if t.FilterHosts {
		filtered = t.runs
	}
	for _, r := range filtered {
		first, last := r.first>>t.Shift, r.last>>t.Shift
		for i := first >> 6; i <= last>>6; i++ {
			if i != at {
				native.PutUint64(filter[8*at:], word)
				at, word = i, 0
			}
			word |= bitRange(i<<6, first, last)
		}
	}
	native.PutUint64(filter[8*at:], word)
}

// bitRange returns a bitmap of the 64 numbers from start on. The bits of the numbers from first to last are set. At least one of these must be among
// the 64.
func bitRange(start, first, last uint32) uint64 {
	word := ^uint64(0)
	if first > start {
		word <<= first - start
	}
	if last < start+63 {
		word &= ^uint64(0) >> (start + 63 - last)
	}
	return word
}

func (t *Table4) encodeIndex(index []byte) {
	base := uint32(0)
	for i, word := range t.present {
		for half := range 2 {
			present := uint32(word >> (32 * half))
			native.PutUint32(index[16*i+8*half:], present)
			native.PutUint32(index[16*i+8*half+4:], base)
			base += uint32(bits.OnesCount32(present))
		}
	}
}

// lineWriter writes the lines in ascending order of their /24s.
type lineWriter struct {
	present []uint64
	lines   []byte // the memory after the last written line
	full    []byte
	blocks  uint32 // number of full blocks written
}

func (w *lineWriter) span(s blockSpan) {
	if s.runs == nil {
		w.uniform(s.first, s.end, s.class)
		return
	}
	line := w.line()
	inside, outside, ok := s.classes()
	if !ok {
		w.fullBlock(s)
		native.PutUint32(line[lineFull:], w.blocks)
		return
	}
	native.PutUint16(line[lineInside:], inside)
	native.PutUint16(line[lineOutside:], outside)
	for _, r := range s.runs {
		if r.class == inside {
			setHosts(line, r, s.first)
		}
	}
}

func (w *lineWriter) line() []byte {
	line := w.lines[:LineBytes]
	w.lines = w.lines[LineBytes:]
	return line
}

func setHosts(line []byte, r run, block uint32) {
	first, last := r.clip(block)
	for i := first >> 6; i <= last>>6; i++ {
		hosts := line[8*i:]
		native.PutUint64(hosts, native.Uint64(hosts)|bitRange(i<<6, first, last))
	}
}

func (w *lineWriter) fullBlock(s blockSpan) {
	for _, r := range s.runs {
		first, last := r.clip(s.first)
		for i := first; i <= last; i++ {
			native.PutUint16(w.full[2*i:], r.class)
		}
	}
	w.full = w.full[FullBlockBytes:]
	w.blocks++
}

// uniform writes the lines of /24s of one class. Only /24s that differ from their background have a line.
func (w *lineWriter) uniform(first, end uint32, class uint16) {
	for at := first; at < end; at++ {
		word := w.present[at>>6] >> (at & 63)
		if word == 0 {
			at |= 63 // the next 63 /24s of this word have no line either
			continue
		}
		if at += uint32(bits.TrailingZeros64(word)); at < end {
			native.PutUint16(w.line()[lineOutside:], class)
		}
	}
}

// Lookup returns the class of an address, which is given as a number. It searches as the datapath does.
func (t *Table4) Lookup(m V4Memory, a uint32) uint16 {
	if t.FilterBytes() > 0 {
		bit := a >> t.Shift
		passes := native.Uint64(m.Filter[bit>>6*8:])>>(bit&63)&1 == 1
		if !passes && t.FilterHosts {
			return 0
		}
		if class := t.lookupBlock(m, a); passes && class != 0 {
			return class
		}
	}
	if t.Hosts.Count == 0 {
		return 0
	}
	return t.Hosts.lookup(m.hosts(), a)
}

// lookupBlock returns the class that a line or a background gives to an address.
func (t *Table4) lookupBlock(m V4Memory, a uint32) uint16 {
	block, present := a>>8, uint32(0)
	if t.Lines > 0 {
		present = native.Uint32(m.Index[block>>5*8:])
	}
	if present>>(block&31)&1 == 0 {
		if !t.behind {
			return 0
		}
		return native.Uint16(m.Background[a>>16*2:])
	}
	base := native.Uint32(m.Index[block>>5*8+4:])
	line := m.Lines[(int(base)+linesBefore(present, block))*LineBytes:][:LineBytes]
	if full := native.Uint32(line[lineFull:]); full != 0 {
		return native.Uint16(m.Full[int(full-1)*FullBlockBytes+int(a&0xff)*2:])
	}
	if native.Uint64(line[a>>6&3*8:])>>(a&63)&1 != 0 {
		return native.Uint16(line[lineInside:])
	}
	return native.Uint16(line[lineOutside:])
}
