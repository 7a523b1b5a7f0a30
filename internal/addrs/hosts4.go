package addrs

import "math/rand/v2"

// HostBucketBytes is the size of a bucket of listed hosts:
//
//	0   u32 address[8]
//	32  u16 class[8]    0: the slot is empty
//	48  u32 more        1: look into the next bucket too
//	52  12 octets 0
const HostBucketBytes = 64

const (
	hostClass = 32
	hostMore  = 48

	hostSlots  = 8
	hostProbes = 8

	// hostLoad is how many of a bucket's slots are used on average. By Poisson's distribution one bucket in fifty then
	// overflows into the next.
	hostLoad = 4.0

	// sparse is the most listed hosts of a /24 that are kept one by one: they then take less memory than a line, and
	// what matters more, the memory that lookups are spread over is smaller.
	sparse = 6
)

// planHosts chooses the number of buckets, which need not be a power of two, and the seed: such that every host finds a
// slot within reach of its own bucket.
func (t *Table4) planHosts() {
	if t.Hosts == 0 {
		return
	}
	for load := hostLoad; ; load *= 0.95 {
		t.HostBuckets = int(float64(t.Hosts)/load) + 1
		t.Seed = rand.Uint64()
		if t.hostsFit() {
			return
		}
	}
}

// hostsFit fills buckets as hostWriter does, but only counts.
func (t *Table4) hostsFit() bool {
	used := make([]uint8, t.HostBuckets)
	fit := true
	t.eachSparse(func(s blockSpan) {
		s.each(func(a uint32, _ uint16) {
			at := hashHost(t.Seed, a, len(used))
			probe := 0
			for ; probe < hostProbes && used[at] == hostSlots; probe++ {
				if at++; at == len(used) {
					at = 0
				}
			}
			fit = fit && probe < hostProbes
			used[at] = min(used[at]+1, hostSlots)
		})
	})
	return fit
}

// eachSparse yields the /24s whose hosts are kept one by one.
func (t *Table4) eachSparse(yield func(blockSpan)) {
	blockSpans(t.runs, func(s blockSpan) {
		if s.runs != nil && t.isSparse(s.first) {
			yield(s)
		}
	})
}

func (t *Table4) isSparse(block uint32) bool { return t.sparse[block>>6]>>(block&63)&1 == 1 }

// each yields the listed addresses of a /24.
func (s blockSpan) each(yield func(a uint32, class uint16)) {
	for _, r := range s.runs {
		first, last := r.clip(s.first)
		for i := first; i <= last; i++ {
			yield(s.first<<8|i, r.class)
		}
	}
}

// hashHost maps an address to [0, buckets), by multiplication (Lemire, "Fast Random Integer Generation in an Interval",
// 2019) of a hash whose seed nobody else knows.
func hashHost(seed uint64, a uint32, buckets int) int {
	h := (uint64(a) ^ seed) * 0x9e3779b97f4a7c15
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	return int(h >> 32 * uint64(buckets) >> 32)
}

// hostWriter fills the buckets of listed hosts.
type hostWriter struct {
	memory []byte
	seed   uint64
}

// add enters a host that is not there yet, and for which planHosts found a slot.
func (w *hostWriter) add(a uint32, class uint16) {
	buckets := len(w.memory) / HostBucketBytes
	at := hashHost(w.seed, a, buckets)
	for range hostProbes {
		b := w.memory[at*HostBucketBytes:][:HostBucketBytes]
		for i := range hostSlots {
			if native.Uint16(b[hostClass+2*i:]) == 0 {
				native.PutUint32(b[4*i:], a)
				native.PutUint16(b[hostClass+2*i:], class)
				return
			}
		}
		native.PutUint32(b[hostMore:], 1)
		if at++; at == buckets {
			at = 0
		}
	}
}

// lookupHost finds a host's class as the datapath does, 0 when it is not listed.
func lookupHost(memory []byte, seed uint64, a uint32) uint16 {
	buckets := len(memory) / HostBucketBytes
	if buckets == 0 {
		return 0
	}
	at := hashHost(seed, a, buckets)
	for range hostProbes {
		b := memory[at*HostBucketBytes:][:HostBucketBytes]
		for i := range hostSlots {
			if native.Uint32(b[4*i:]) == a && native.Uint16(b[hostClass+2*i:]) != 0 {
				return native.Uint16(b[hostClass+2*i:])
			}
		}
		if native.Uint32(b[hostMore:]) == 0 {
			return 0
		}
		if at++; at == buckets {
			at = 0
		}
	}
	return 0
}
