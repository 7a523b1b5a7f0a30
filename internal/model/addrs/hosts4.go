package addrs

import "math/rand/v2"

// HostLineBytes is the size of a line of listed hosts, one line of the cache:
//
//	narrow  u16 slot[28], u64 rest  the lower 16 bits of a host's number; what is beside them
//	wide    u32 number[10], u16 class[10], u32 factor  class 0: the slot is empty
//
// The factor of a wide line times a host's number says which slot is the host's. Its lowest two bits are flags: wideMore, and wideScan if
// no factor was found with which all hosts of the line have different slots. Then they have the first slots.
//
// A narrow line stores 18 bits of a number. The rest is four groups of 16 bits. Slot s has bits 16 and 17 of its number in group s%4, at
// the bits s/4 and 7 + s/4. Bit narrowMore of the whole is a flag: further hosts of the line are in wide lines. Slots without a host
// hold a number of the next line, which nobody looks for here.
const HostLineBytes = 64

// HostClassesBytes is the size of the classes of a narrow line's hosts: u16 class[32], by slot; the last four are not used.
const HostClassesBytes = 64

// The wide line that entries of XDP programs read themselves: its slots, and where their classes and the factor are, in bytes.
const (
	WideSlots    = 10
	WideClassAt  = 40
	WideFactorAt = 60
)

// The odd factors of number and second.
const (
	HostFactor   = 0x2c1b3c6d
	SecondFactor = 0x9e3779b1 // 2^32 over the golden ratio
)

const (
	narrowSlots = 28
	narrowRest  = 56 // bytes before the rest of a narrow line
	narrowMore  = 1 << 14
	hostProbes  = 8

	wideMore = 1 // look into the next wide line, too
	wideScan = 2 // look at all slots

	// How many factors are tried for a line. With 1 in 55 of them eight hosts have different slots, with 1 in 275 nine, with 1 in 2756 ten.
	mostFactors = 1024

	// A host's number has 32 bits. The line tells the upper bits, a narrow line stores the lower 18. So narrow lines are as many as
	// leave each fewer than 2^18 numbers: one number of the next line must differ from all of a line.
	minNarrow = 1<<14 + 2

	// More hosts than these have narrow lines: with fewer, wide lines take about as much memory, and less time.
	maxWide = 1 << 17

	// How many slots of a line are used on average, at most. By Poisson's distribution, a narrow line in 12 overflows then, with 1 in 120
	// hosts, and a wide one in 25.
	narrowLoad = 22
	wideLoad   = 6

	// Up to fewHosts take so little memory that their lines are half as full: almost all of these have a factor, and hardly one overflows.
	fewHosts = 1000
	fewLoad  = 3

	// The filter of hosts has 16 bits a host, up to 1 MB, half of what a core has of cache for itself: then 2 in 100 unlisted
	// addresses pass it, or 5 for a million hosts. One for more than maxFiltered would let too many pass.
	filterBits     = 16
	maxFilterWords = 1 << 17
	maxFiltered    = 3 << 19

	// sparse is the most listed hosts of a /24 that are kept one by one: they then take less memory than a line, and
	// what matters more, the memory that lookups are spread over is smaller.
	sparse = 6
)

// Hosts4 is a hash of the IPv4 addresses that are listed one by one, planned but not yet written to memory. A permutation of
// the 32-bit numbers, whose key nobody else knows, makes a number of each address. Its upper bits choose a line.
type Hosts4 struct {
	Count  int // number of addresses
	Narrow int // number of narrow lines; none for few hosts, which wide lines hold all
	Wide   int // number of wide lines, behind the narrow ones
	Key    uint32
	Factor uint32
	Filter int    // words of the filter, 0: there is none
	Class  uint16 // of all hosts in narrow lines; 0: they are of several, or there are none
}

// Lines is the number of all lines.
func (h *Hosts4) Lines() int { return h.Narrow + h.Wide }

// ClassLines is the number of lines whose classes are beside them: the narrow ones, when hosts are of several classes.
func (h *Hosts4) ClassLines() int {
	if h.Class != 0 {
		return 0
	}
	return h.Narrow
}

// FilterBytes is the size of the filter. The word behind the last is never read: the verifier does not see that.
func (h *Hosts4) FilterBytes() int {
	if h.Filter == 0 {
		return 0
	}
	return 8 * (h.Filter + 1)
}

// Follow reports whether a CPU asks the filter only while its packets are of unlisted addresses: where the lines are much
// more than the filter, and a packet of a listed address would pay for both.
func (h *Hosts4) Follow() bool { return h.Filter > 0 && h.Narrow > 0 }

// host is a listed address, and its class.
type host struct {
	addr  uint32
	class uint16
}

// plan chooses the lines and the key, such that every host finds a slot within reach of its line. filtered is whether hosts
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

// fits chooses the number of wide lines, and reports whether all hosts find a slot with the key.
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

// number is the address by another name: a keyed permutation of the 32-bit numbers.
func (h *Hosts4) number(a uint32) uint32 {
	n := (a ^ h.Key) * h.Factor
	n ^= n >> 16
	return n * HostFactor
}

// share maps a number to [0, of) in proportion (Lemire, "Fast Random Integer Generation in an Interval", 2019).
func share(number uint32, of int) int { return int(uint64(number) * uint64(of) >> 32) }

// second is another number of a host, of which the upper bits count: by Fibonacci hashing (Knuth, "The Art of Computer
// Programming", volume 3, 6.4).
func second(number uint32) uint32 { return number * SecondFactor }

// filterMask is the word of the filter that a host's number leads to, and its bits there.
func (h *Hosts4) filterMask(number uint32) (word int, mask uint64) {
	bits := second(number)
	return share(number, h.Filter), 1<<(bits>>26) | 1<<(bits>>20&63)
}

// hostPlace is a slot of a line; wide lines are numbered behind the narrow ones. line is -1 when there is none.
type hostPlace struct{ line, slot int }

// hostPlacer gives hosts slots, one after the other.
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

// widePlace finds a slot in the host's wide line or in those behind it. full is called for each line that has none.
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
