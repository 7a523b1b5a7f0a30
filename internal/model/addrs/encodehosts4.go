// SPDX-License-Identifier: Apache-2.0

package addrs

import "math/rand/v2"

// hostMemory is the memory of a hash of hosts.
type hostMemory struct {
	lines   []byte // Hosts4.Lines, HostLineBytes each
	classes []byte // HostClassesBytes for each narrow line; empty if all hosts are of one class
	filter  []byte
}

// encode writes the hash of the hosts in list to memory that holds zeros.
func (h *Hosts4) encode(m hostMemory, list []host) {
	w := hostWriter{hostPlacer: h.placer(), hostMemory: m}
	w.fillNarrow()
	for _, l := range list {
		w.add(l)
	}
	for i := range w.Wide {
		arrange(w.line(w.Narrow + i))
	}
}

// hostWriter fills the lines. It uses the same order as plan, which has counted the slots.
type hostWriter struct {
	*hostPlacer
	hostMemory
}

// fillNarrow fills all slots of narrow lines with a number that no host of the line can have.
func (w *hostWriter) fillNarrow() {
	for i := range w.Narrow {
		line := w.line(i)
		next := (uint64(i+1)<<32 + uint64(w.Narrow) - 1) / uint64(w.Narrow) // share(next, w.Narrow) is i + 1
		for at := 0; at < narrowRest; at += 8 {
			native.PutUint64(line[at:], uint64(uint16(next))*everySlot)
		}
		native.PutUint64(line[narrowRest:], upperBits(uint32(next)))
	}
}

// everySlot has the lowest bit set in each slot of a word, and in each group of the rest of a narrow line.
const everySlot = 0x0001000100010001

// upperBits returns bits 16 and 17 of a number as the rest of a narrow line stores them, repeated for every slot.
func upperBits(number uint32) uint64 {
	const lower, upper = 0x7f * everySlot, 0x3f80 * everySlot
	return uint64(number>>16&1)*lower | uint64(number>>17&1)*upper
}

// restOf returns the mask of the bits in the rest of a narrow line that belong to a slot.
func restOf(slot int) uint64 { return 0x81 << (slot / 4) << (16 * (slot % 4)) }

// putNarrow writes a number to a slot of a narrow line.
func putNarrow(line []byte, slot int, number uint32) {
	native.PutUint16(line[2*slot:], uint16(number))
	rest, own := line[narrowRest:], restOf(slot)
	native.PutUint64(rest, native.Uint64(rest)&^own|upperBits(number)&own)
}

func (w *hostWriter) line(i int) []byte { return w.lines[i*HostLineBytes:][:HostLineBytes] }

// add writes a host that is not in the hash yet.
func (w *hostWriter) add(l host) {
	number := w.Hosts4.number(l.addr)
	if w.Filter > 0 {
		i, mask := w.filterMask(number)
		word := w.filter[8*i:]
		native.PutUint64(word, native.Uint64(word)|mask)
	}
	if p := w.narrowPlace(number); p.line >= 0 {
		putNarrow(w.line(p.line), p.slot, number)
		if len(w.classes) > 0 {
			native.PutUint16(w.classes[p.line*HostClassesBytes+2*p.slot:], l.class)
		}
		return
	}
	if w.Narrow > 0 {
		rest := w.line(share(number, w.Narrow))[narrowRest:]
		native.PutUint64(rest, native.Uint64(rest)|narrowMore)
	}
	p := w.widePlace(number, func(line int) { native.PutUint32(w.line(line)[WideFactorAt:], wideMore) })
	line := w.line(p.line)
	native.PutUint32(line[4*p.slot:], number)
	native.PutUint16(line[WideClassAt+2*p.slot:], l.class)
}

// arrange moves the hosts of a wide line from its first slots to the slots that a perfect hash gives them. If it finds no
// factor for such a hash, the hosts stay in the first slots.
func arrange(line []byte) {
	var numbers []uint32
	for at := 0; at < WideSlots && native.Uint16(line[WideClassAt+2*at:]) != 0; at++ {
		numbers = append(numbers, native.Uint32(line[4*at:]))
	}
	flags := native.Uint32(line[WideFactorAt:])
	factor, ok := perfectFactor(numbers, flags)
	if !ok {
		native.PutUint32(line[WideFactorAt:], flags|wideScan)
		return
	}
	old := [HostLineBytes]byte(line)
	clear(line)
	for at, number := range numbers {
		slot := wideSlot(factor, number)
		native.PutUint32(line[4*slot:], number)
		copy(line[WideClassAt+2*slot:][:2], old[WideClassAt+2*at:])
	}
	native.PutUint32(line[WideFactorAt:], factor)
}

// perfectFactor searches for a factor with these flags that gives all numbers different slots.
func perfectFactor(numbers []uint32, flags uint32) (factor uint32, ok bool) {
	factor = flags
	for range mostFactors {
		if haveOwnSlots(numbers, factor) {
			return factor, true
		}
		factor = rand.Uint32()&^(wideMore|wideScan) | flags
	}
	return 0, false
}

func haveOwnSlots(numbers []uint32, factor uint32) bool {
	used := 0
	for _, number := range numbers {
		slot := 1 << wideSlot(factor, number)
		if used&slot != 0 {
			return false
		}
		used |= slot
	}
	return true
}

// wideSlot returns the slot of a number in a wide line with the given factor.
func wideSlot(factor, number uint32) int { return share(factor*number, WideSlots) }

// lookup returns a host's class, or 0 if it is not listed. It searches as the datapath does.
func (h *Hosts4) lookup(m hostMemory, a uint32) uint16 {
	number := h.number(a)
	if h.Filter > 0 {
		if i, mask := h.filterMask(number); native.Uint64(m.filter[8*i:])&mask != mask {
			return 0
		}
	}
	if h.Narrow > 0 {
		at := share(number, h.Narrow)
		line := m.lines[at*HostLineBytes:][:HostLineBytes]
		for slot := range narrowSlots {
			if native.Uint16(line[2*slot:]) == uint16(number) && (native.Uint64(line[narrowRest:])^upperBits(number))&restOf(slot) == 0 {
				return h.classAt(m, at, slot)
			}
		}
		if native.Uint64(line[narrowRest:])&narrowMore == 0 {
			return 0
		}
	}
	return h.lookupWide(m, number)
}

// classAt returns the class of the host in a slot of a narrow line.
func (h *Hosts4) classAt(m hostMemory, line, slot int) uint16 {
	if h.Class != 0 {
		return h.Class
	}
	return native.Uint16(m.classes[line*HostClassesBytes+2*slot:])
}

func (h *Hosts4) lookupWide(m hostMemory, number uint32) uint16 {
	if h.Wide == 0 {
		return 0
	}
	at := share(second(number), h.Wide)
	for range hostProbes {
		line := m.lines[(h.Narrow+at)*HostLineBytes:][:HostLineBytes]
		factor := native.Uint32(line[WideFactorAt:])
		if slot := wideSlot(factor, number); native.Uint32(line[4*slot:]) == number {
			return native.Uint16(line[WideClassAt+2*slot:])
		}
		for slot := 0; slot < WideSlots && factor&wideScan != 0; slot++ {
			if native.Uint32(line[4*slot:]) == number {
				return native.Uint16(line[WideClassAt+2*slot:])
			}
		}
		if factor&wideMore == 0 {
			return 0
		}
		if at++; at == h.Wide {
			at = 0
		}
	}
	return 0
}
