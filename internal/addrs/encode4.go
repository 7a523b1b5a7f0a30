package addrs

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

var native = binary.NativeEndian

// Offsets within a line, in octets.
const (
	lineInside  = 32
	lineOutside = 34
	lineFull    = 36
)

// V4Memory is the memory of an IPv4 table. It may be larger than the table.
type V4Memory struct {
	Filter     []byte // Table4.FilterBytes
	Index      []byte // IndexBytes
	Background []byte // BackgroundBytes
	Lines      []byte // LineBytes each
	Full       []byte // FullBlockBytes each
	Hosts      []byte // Table4.HostBuckets, HostBucketBytes each, exactly
}

// NewMemory allocates memory for the table. The datapath maps BPF arrays instead.
func (t *Table4) NewMemory() V4Memory {
	return V4Memory{
		Filter:     make([]byte, t.FilterBytes()),
		Index:      make([]byte, IndexBytes),
		Background: make([]byte, BackgroundBytes),
		Lines:      make([]byte, t.Lines*LineBytes),
		Full:       make([]byte, t.FullBlocks*FullBlockBytes),
		Hosts:      make([]byte, t.HostBuckets*HostBucketBytes),
	}
}

// Encode writes the table to memory that holds zeros.
func (t *Table4) Encode(m V4Memory) error {
	for _, part := range []struct {
		name      string
		got, want int
	}{
		{"filter", len(m.Filter), t.FilterBytes()},
		{"index", len(m.Index), IndexBytes},
		{"background", len(m.Background), BackgroundBytes},
		{"lines", len(m.Lines), t.Lines * LineBytes},
		{"full blocks", len(m.Full), t.FullBlocks * FullBlockBytes},
		{"hosts", len(m.Hosts), t.HostBuckets * HostBucketBytes},
	} {
		if part.got < part.want {
			return fmt.Errorf("memory for the %s has %d octets, the table needs %d", part.name, part.got, part.want)
		}
	}
	t.encodeFilter(m.Filter)
	t.encodeIndex(m.Index)
	for net, class := range t.background {
		native.PutUint16(m.Background[2*net:], class)
	}
	lines := lineWriter{present: t.present, lines: m.Lines, full: m.Full}
	hosts := hostWriter{memory: m.Hosts[:t.HostBuckets*HostBucketBytes], seed: t.Seed}
	blockSpans(t.runs, func(s blockSpan) { // lines of /24s behind the last run are all zeros
		if s.runs != nil && t.isSparse(s.first) {
			s.each(hosts.add)
		} else {
			lines.span(s)
		}
	})
	return nil
}

func (t *Table4) encodeFilter(filter []byte) {
	var word uint64
	at := uint32(0)
	for _, r := range t.runs {
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

// bitRange has the bits set of the 64 numbers from start that lie between first and last, both included, of which at
// least one does.
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
	lines   []byte // not yet written
	full    []byte
	blocks  uint32 // full blocks written
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

// uniform writes the lines of those /24s of one class that differ from their background.
func (w *lineWriter) uniform(first, end uint32, class uint16) {
	for at := first; at < end; at++ {
		word := w.present[at>>6] >> (at & 63)
		if word == 0 {
			at |= 63 // no more lines in this word
			continue
		}
		if at += uint32(bits.TrailingZeros64(word)); at < end {
			native.PutUint16(w.line()[lineOutside:], class)
		}
	}
}

// Lookup finds the class of an address, given as a number, as the datapath does.
func (t *Table4) Lookup(m V4Memory, a uint32) uint16 {
	bit := a >> t.Shift
	if native.Uint64(m.Filter[bit>>6*8:])>>(bit&63)&1 == 0 {
		return 0
	}
	block := a >> 8
	present := native.Uint32(m.Index[block>>5*8:])
	if present>>(block&31)&1 == 0 {
		if class := lookupHost(m.Hosts, t.Seed, a); class != 0 {
			return class
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
