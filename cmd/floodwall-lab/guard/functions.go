// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// function emulates a kernel function that a program calls. It gets registers 1 to 5, and returns register 0.
type function func(m *Machine, r [5]uint64) (uint64, error)

// functions are the emulated functions, by their names in the kernel. If a result depends on state outside of program and maps, it is
// fixed:
//   - the clocks are Machine.Now, all three of them, and the counter of ticks follows it;
//   - random numbers are one sequence, the same after each Forget;
//   - no socket and no connection is known to the kernel, so none is ever released;
//   - the kernel's own cookies are always 1, for segments of 1460 bytes, and no cookie of its is right;
//   - a ring is empty, and takes every record.
var functions = map[string]function{
	"bpf_ktime_get_ns":        clock,
	"bpf_ktime_get_coarse_ns": clock,
	"bpf_ktime_get_tai_ns":    clock,
	"bpf_user_rnd_u32":        random, // bpf_get_prandom_u32()

	"bpf_xdp_get_buff_len": func(m *Machine, _ [5]uint64) (uint64, error) { return m.dataEnd - m.data, nil },
	"bpf_xdp_load_bytes":   loadBytes,
	"bpf_xdp_adjust_tail":  adjustTail,
	"bpf_skb_load_bytes":   loadBytes,
	"bpf_skb_pull_data":    nothing, // the whole frame is linear

	"__htab_map_lookup_elem":           lookupElement,
	"trie_lookup_elem":                 lookupTrie,
	"htab_map_update_elem":             update,
	"htab_lru_map_update_elem":         update,
	"bpf_ringbuf_reserve":              reserve,
	"bpf_ringbuf_submit":               nothing,
	"bpf_ringbuf_discard":              nothing,
	"bpf_ringbuf_query":                queryRing,
	"bpf_xdp_skc_lookup_tcp":           nothing,
	"bpf_xdp_ct_lookup":                lookupConnection,
	"bpf_tcp_raw_gen_syncookie_ipv4":   kernelCookie,
	"bpf_tcp_raw_gen_syncookie_ipv6":   kernelCookie,
	"bpf_tcp_raw_check_syncookie_ipv4": failing(unix.EACCES),
	"bpf_tcp_raw_check_syncookie_ipv6": failing(unix.EACCES),
}

// nothing has no effect, and returns 0.
func nothing(*Machine, [5]uint64) (uint64, error) { return 0, nil }

// failing returns a function that returns an error number.
func failing(errno unix.Errno) function {
	return func(*Machine, [5]uint64) (uint64, error) { return negative(errno), nil }
}

func negative(errno unix.Errno) uint64 { return -uint64(errno) }

func clock(m *Machine, _ [5]uint64) (uint64, error) { return m.Now(), nil }

// random implements SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), and returns the upper half of its result.
func random(m *Machine, _ [5]uint64) (uint64, error) {
	m.seed += 0x9e3779b97f4a7c15
	z := m.seed
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return (z ^ z>>31) >> 32, nil
}

// loadBytes emulates bpf_xdp_load_bytes(context, offset, buffer, length). At tc another error number is returned, which no program looks at.
func loadBytes(m *Machine, r [5]uint64) (uint64, error) {
	offset, length := uint64(uint32(r[1])), uint64(uint32(r[3]))
	if offset+length > m.dataEnd-m.data {
		return negative(unix.EINVAL), nil
	}
	b, err := m.bytes(m.data+offset, int(length))
	if err != nil {
		return 0, err
	}
	_, err = m.store(r[2], b)
	return 0, err
}

// adjustTail emulates bpf_xdp_adjust_tail(context, delta): net/core/filter.c of the kernel. A longer frame gets zeros at its end.
func adjustTail(m *Machine, r [5]uint64) (uint64, error) {
	delta := int64(int32(r[1]))
	end := int64(m.dataEnd) + delta
	if end > int64(m.frame.base)+frameSize-tailroom || end < int64(m.data)+ethernetHeader {
		return negative(unix.EINVAL), nil
	}
	if delta > 0 {
		clear(m.frame.bytes[m.dataEnd-m.frame.base:][:delta])
	}
	m.dataEnd = uint64(end)
	_, err := m.setNumber(m.context.base+m.layout.dataEnd, 8, m.dataEnd)
	return 0, err
}

// mapOf returns the map that a pointer in r refers to, and the key that the next pointer refers to.
func (m *Machine) mapOf(r [5]uint64) (*table, []byte, error) {
	t := m.byObject[r[0]]
	if t == nil {
		return nil, nil, fmt.Errorf("%#x is no map", r[0])
	}
	key, err := m.bytes(r[1], int(t.KeySize()))
	return t, key, err
}

// lookupElement finds an element of a hash. The code after the call adds the offset of the value.
func lookupElement(m *Machine, r [5]uint64) (uint64, error) {
	t, key, err := m.mapOf(r)
	if err != nil {
		return 0, err
	}
	e, err := m.element(t, key)
	if e == nil || err != nil {
		return 0, err
	}
	return e.base, nil
}

// lookupTrie finds the element with the longest prefix, with a lookup in the kernel. Programs cannot write to a trie here.
func lookupTrie(m *Machine, r [5]uint64) (uint64, error) {
	t, key, err := m.mapOf(r)
	if err != nil {
		return 0, err
	}
	found, ok := t.elements[string(key)]
	if !ok {
		value, err := t.LookupBytes(key)
		if err != nil {
			return 0, err
		}
		if value != nil {
			found = m.addPassing(t.object.name+": value", value)
		}
		t.elements[string(key)] = found
	}
	if found == nil {
		return 0, nil
	}
	return found.base, nil
}

// update emulates bpf_map_update_elem(map, key, value, flags) of a hash. The hash is never full.
func update(m *Machine, r [5]uint64) (uint64, error) {
	t, key, err := m.mapOf(r)
	if err != nil {
		return 0, err
	}
	value, err := m.bytes(r[2], int(t.ValueSize()))
	if err != nil {
		return 0, err
	}
	e, err := m.element(t, key)
	switch {
	case err != nil:
		return 0, err
	case e != nil && ebpf.MapUpdateFlags(r[3]) == ebpf.UpdateNoExist:
		return negative(unix.EEXIST), nil
	case e == nil && ebpf.MapUpdateFlags(r[3]) == ebpf.UpdateExist:
		return negative(unix.ENOENT), nil
	}
	m.setElement(t, key, value) // a new element, like in the kernel
	return 0, nil
}

// reserve emulates bpf_ringbuf_reserve(ring, size, flags).
func reserve(m *Machine, r [5]uint64) (uint64, error) {
	return m.addPassing("record of a ring", make([]byte, uint32(r[1]))).base, nil
}

// queryRing emulates bpf_ringbuf_query(ring, flags). The size is the size of the map. All other values are 0, like in an empty ring.
func queryRing(m *Machine, r [5]uint64) (uint64, error) {
	const ringSize = 1 // BPF_RB_RING_SIZE
	t := m.byObject[r[0]]
	if t == nil {
		return 0, fmt.Errorf("%#x is no map", r[0])
	}
	if r[1] != ringSize {
		return 0, nil
	}
	return uint64(t.MaxEntries()), nil
}

// lookupConnection emulates bpf_xdp_ct_lookup(context, tuple, its length, options, their length) of nf_conntrack.
func lookupConnection(m *Machine, r [5]uint64) (uint64, error) {
	const errorOffset = 4 // in struct bpf_ct_opts
	_, err := m.setNumber(r[3]+errorOffset, 4, uint64(uint32(negative(unix.ENOENT))))
	return 0, err
}

// kernelCookie emulates bpf_tcp_raw_gen_syncookie_ipv4 or _ipv6. It returns the cookie in the lower half, and the segment size in the upper half.
func kernelCookie(*Machine, [5]uint64) (uint64, error) { return 1 | 1460<<32, nil }
