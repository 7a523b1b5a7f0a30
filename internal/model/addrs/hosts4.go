// SPDX-License-Identifier: Apache-2.0

package addrs

import "math/rand/v2"

// HostLineBytes is the size of a line of listed hosts. It is one cache line. Its two forms are:
//
//	narrow  u16 slot[28], u64 rest  the lower 16 bits of each host's number; their further bits
//	wide    u32 number[10], u16 class[10], u32 factor  class 0 means that the slot is empty
//
// In a wide line, the factor times a host's number gives the host's slot. The lowest two bits of the factor are flags: wideMore and
// wideScan. wideScan is set if no factor was found that gives all hosts of the line different slots. The hosts then fill the first slots.
//
// A narrow line stores 18 bits of each number. The rest is four groups of 16 bits. Bits 16 and 17 of the number in slot s are in group s%4,
// at bits s/4 and 7 + s/4. The bit narrowMore of the rest is a flag: further hosts of this line are in wide lines. Slots without a host
// hold a number of the next line, for which no lookup searches this line.
const HostLineBytes = 64

// HostClassesBytes is the size of the classes of a narrow line's hosts: u16 class[32], indexed by slot. The last four are not used.
const HostClassesBytes = 64

// The layout of a wide line, for XDP programs whose entry reads it directly: the number of slots, and the byte offsets of their classes and
// of the factor.
const (
	WideSlots    = 10
	WideClassAt  = 40
	WideFactorAt = 60
)

// The odd factors of the functions number and second.
const (
	HostFactor   = 0x2c1b3c6d
	SecondFactor = 0x9e3779b1 // 2^32 divided by the golden ratio
)

const (
	narrowSlots = 28
	narrowRest  = 56 // byte offset of the rest of a narrow line
	narrowMore  = 1 << 14
	hostProbes  = 8

	wideMore = 1 // search the next wide line, too
	wideScan = 2 // search all slots

	// mostFactors is the number of factors that are tried for a line. A random factor gives different slots to eight hosts in 1 of 55
	// cases, to nine hosts in 1 of 275, and to ten in 1 of 2756.
	mostFactors = 1024

	// A host's number has 32 bits. The upper bits determine the line, and a narrow line stores the lower 18. minNarrow is the least number
	// of narrow lines with which each line has fewer than 2^18 numbers: one number of the next line must differ from all numbers of a line.
	minNarrow = 1<<14 + 2

	// maxWide is the largest number of hosts without narrow lines. Up to that number, wide lines take about as much memory as narrow ones,
	// and less time.
	maxWide = 1 << 17

	// The largest average number of used slots per line. By the Poisson distribution, one narrow line in 12 then overflows, which affects
	// one host in 120, and one wide line in 25.
	narrowLoad = 22
	wideLoad   = 6

	// fewHosts is the number of hosts up to which lines are filled only half as much, because so few hosts take little memory in any case. Almost all
	// of these lines then have a factor, and hardly any line overflows.
	fewHosts = 1000
	fewLoad  = 3

	// The filter of hosts has 16 bits per host, up to 1 MB, which is half the private cache of a core. Of the unlisted addresses, 2 in 100
	// pass it, or 5 in 100 with a million hosts. With more than maxFiltered hosts, too many would pass.
	filterBits     = 16
	maxFilterWords = 1 << 17
	maxFiltered    = 3 << 19

	// sparse is the largest number of listed hosts of a /24 that are stored in the hash. They then take less memory than a line. More
	// importantly, the lookups are spread over less memory.
	sparse = 6
)

// Hosts4 is a hash of the IPv4 addresses that are listed one by one, planned but not yet written to memory. A permutation of the 32-bit
// numbers with a secret key maps each address to its number. The upper bits of the number choose a line.
type Hosts4 struct {
	Count  int // number of addresses
	Narrow int // number of narrow lines; 0 for few hosts, which are all in wide lines
	Wide   int // number of wide lines, which follow the narrow ones
	Key    uint32
	Factor uint32
	Filter int    // size of the filter in words; 0 means that there is no filter
	Class  uint16 // class of all hosts in narrow lines; 0 if they have several classes or there are no narrow lines
}

// Lines returns the number of all lines.
func (h *Hosts4) Lines() int { return h.Narrow + h.Wide }

// ClassLines returns the number of lines whose classes are stored separately: all narrow lines if the hosts have several classes, otherwise
// 0.
func (h *Hosts4) ClassLines() int {
	if h.Class != 0 {
		return 0
	}
	return h.Narrow
}

// FilterBytes returns the size of the filter in bytes. The word after the last one is never read, but the BPF verifier cannot know that.
func (h *Hosts4) FilterBytes() int {
	if h.Filter == 0 {
		return 0
	}
	return 8 * (h.Filter + 1)
}

// Follow reports whether a CPU uses the filter only while its packets have unlisted addresses. This is so if the lines take much more memory than the
// filter, because a packet of a listed address would then pay for a memory access to both.
func (h *Hosts4) Follow() bool { return h.Filter > 0 && h.Narrow > 0 }

// host is a listed address, and its class.
type host struct {
	addr  uint32
	class uint16
}

// plan chooses the number of lines and the key, such that every host finds a slot that lookups from its line reach. filtered tells whether the hosts
// get a filter of their own.
func (h *Hosts4) plan(list []host, filtered bool) {
	if h.Count == 0 {
		return
	}
	if h.Count > maxWide {
		h.Narrow = max(minNarrow, h.Count/narrowLoad)
	}
	if filtered && h.Count <= maxFiltered {
		h.Filter = min(max(h.Count*filterBits/64, 1), maxFilterWords)
	}
	load := float64(wideLoad)
	if h.Count <= fewHosts {
		load = fewLoad
	}
	for ; ; load *= 0.95 {
		h.Key, h.Factor = rand.Uint32(), rand.Uint32()|1
		if h.fits(list, load) {
			return
		}
	}
}

// fits chooses the number of wide lines for the current key. It reports whether all hosts find a slot.
func (h *Hosts4) fits(list []host, load float64) bool {
	var wide []uint32
	several := false
	p := h.placer()
	for _, l := range list {
		several = several || l.class != list[0].class
		if n := h.number(l.addr); p.narrowPlace(n).line < 0 {
			wide = append(wide, n)
		}
	}
	h.Class = list[0].class
	if several || h.Narrow == 0 {
		h.Class = 0
	}
	h.Wide = 0
	if len(wide) > 0 {
		h.Wide = int(float64(len(wide))/load) + 1
	}
	p.wide = make([]uint8, h.Wide)
	for _, n := range wide {
		if p.widePlace(n, func(int) {}).line < 0 {
			return false
		}
	}
	return true
}

// number returns the host's number of an address, by a keyed permutation of the 32-bit numbers.
func (h *Hosts4) number(a uint32) uint32 {
	n := (a ^ h.Key) * h.Factor
	n ^= n >> 16
	return n * HostFactor
}

// share maps a number to [0, of) in proportion (Lemire, "Fast Random Integer Generation in an Interval", 2019).
func share(number uint32, of int) int { return int(uint64(number) * uint64(of) >> 32) }

// second returns a second hash of a host's number, of which only the upper bits are good. It is Fibonacci hashing (Knuth, "The Art of
// Computer Programming", volume 3, 6.4).
func second(number uint32) uint32 { return number * SecondFactor }

// filterMask returns the index of the filter's word for a host's number, and the mask of its bits in that word.
func (h *Hosts4) filterMask(number uint32) (word int, mask uint64) {
	bits := second(number)
	return share(number, h.Filter), 1<<(bits>>26) | 1<<(bits>>20&63)
}

// hostPlace is a slot of a line. Wide lines are numbered after the narrow lines. If there is no free slot, line is -1.
type hostPlace struct{ line, slot int }

// hostPlacer assigns slots to hosts, one after the other.
type hostPlacer struct {
	*Hosts4
	narrow, wide []uint8 // how many slots of each line are used
}

func (h *Hosts4) placer() *hostPlacer {
	return &hostPlacer{h, make([]uint8, h.Narrow), make([]uint8, h.Wide)}
}

// narrowPlace finds a slot in the host's narrow line.
func (p *hostPlacer) narrowPlace(number uint32) hostPlace {
	if p.Narrow == 0 {
		return hostPlace{line: -1}
	}
	line := share(number, p.Narrow)
	fill := &p.narrow[line]
	if *fill == narrowSlots {
		return hostPlace{line: -1}
	}
	*fill++
	return hostPlace{line, int(*fill - 1)}
}

// widePlace finds a slot in the host's wide line or in the lines after it. It calls full for each line on the way that has no free slot.
func (p *hostPlacer) widePlace(number uint32, full func(line int)) hostPlace {
	at := share(second(number), p.Wide)
	for range hostProbes {
		if fill := &p.wide[at]; *fill < WideSlots {
			*fill++
			return hostPlace{p.Narrow + at, int(*fill - 1)}
		}
		full(p.Narrow + at)
		if at++; at == p.Wide {
			at = 0
		}
	}
	return hostPlace{line: -1}
}
