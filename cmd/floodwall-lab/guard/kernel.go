// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/cilium/ebpf/btf"
)

// layout is the offsets of structure members in this kernel that programs read without a call, in bytes.
type layout struct {
	data, dataEnd, dataMeta, dataHardStart, rxq, frameSize, buff uint64 // struct xdp_buff, and its size
	device, queue, rxqInfo                                       uint64 // struct xdp_rxq_info, and its size
	ifindex                                                      uint64 // struct net_device
	arrayValues                                                  uint64 // struct bpf_array
	hashKey                                                      uint64 // struct htab_elem
}

// kernelLayout reads the layout from the kernel's own types.
var kernelLayout = sync.OnceValues(func() (l layout, err error) {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return l, fmt.Errorf("types of the kernel: %w", err)
	}
	return l, readOffsets(spec, []offset{
		{"xdp_buff", "data", &l.data}, {"xdp_buff", "data_end", &l.dataEnd}, {"xdp_buff", "data_meta", &l.dataMeta},
		{"xdp_buff", "data_hard_start", &l.dataHardStart}, {"xdp_buff", "rxq", &l.rxq}, {"xdp_buff", "frame_sz", &l.frameSize},
		{"xdp_buff", "", &l.buff}, {"xdp_rxq_info", "dev", &l.device}, {"xdp_rxq_info", "queue_index", &l.queue},
		{"xdp_rxq_info", "", &l.rxqInfo}, {"net_device", "ifindex", &l.ifindex}, {"bpf_array", "value", &l.arrayValues},
		{"htab_elem", "key", &l.hashKey},
	})
})

// socketLayout is the same for a program at tc.
type socketLayout struct {
	length, data, head, end, device, control, size uint64 // struct sk_buff, and its size
	dataEnd                                        uint64 // struct bpf_skb_data_end, which is at control
}

// socketLayouts reads that layout from the kernel's own types.
var socketLayouts = sync.OnceValues(func() (l socketLayout, err error) {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return l, fmt.Errorf("types of the kernel: %w", err)
	}
	return l, readOffsets(spec, []offset{
		{"sk_buff", "len", &l.length}, {"sk_buff", "data", &l.data}, {"sk_buff", "head", &l.head}, {"sk_buff", "end", &l.end},
		{"sk_buff", "dev", &l.device}, {"sk_buff", "cb", &l.control}, {"sk_buff", "", &l.size},
		{"bpf_skb_data_end", "data_end", &l.dataEnd},
	})
})

// offset is the place for the offset of a member. The name "" stands for the structure's size.
type offset struct {
	of, name string
	at       *uint64
}

// readOffsets reads offsets from the types of a kernel.
func readOffsets(spec *btf.Spec, all []offset) (err error) {
	for _, m := range all {
		if *m.at, err = MemberOffset(spec, m.of, m.name); err != nil {
			return err
		}
	}
	return nil
}

// MemberOffset returns the offset of a member in a structure of the kernel, in bytes. For the name "" it returns the structure's size.
func MemberOffset(kernel *btf.Spec, of, name string) (uint64, error) {
	var s *btf.Struct
	if err := kernel.TypeByName(of, &s); err != nil {
		return 0, fmt.Errorf("struct %s of the kernel: %w", of, err)
	}
	if name == "" {
		return uint64(s.Size), nil
	}
	bytes, ok := offsetIn(s.Members, name)
	if !ok {
		return 0, fmt.Errorf("struct %s of the kernel has no member %s", of, name)
	}
	return bytes, nil
}

// offsetIn returns the offset of a member, which may be in a nested structure or union without a name.
func offsetIn(members []btf.Member, name string) (uint64, bool) {
	for _, m := range members {
		at := uint64(m.Offset.Bytes())
		if m.Name == name {
			return at, true
		}
		if m.Name != "" {
			continue
		}
		var inner []btf.Member
		switch t := btf.UnderlyingType(m.Type).(type) {
		case *btf.Struct:
			inner = t.Members
		case *btf.Union:
			inner = t.Members
		}
		if in, ok := offsetIn(inner, name); ok {
			return at + in, true
		}
	}
	return 0, false
}

// Symbols are the kernel's functions by their addresses. A function may have several names.
type Symbols struct {
	base  uint64 // __bpf_call_base, which distances of calls start from
	names map[uint64][]string
}

// Called returns the names of the function at a distance from __bpf_call_base. Translated programs call functions by this distance.
func (s *Symbols) Called(distance int64) []string { return s.names[s.base+uint64(distance)] }

// KernelSymbols reads /proc/kallsyms once. This needs root, and sysctl kernel.kptr_restrict of at most 1.
var KernelSymbols = sync.OnceValues(func() (*Symbols, error) {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return nil, fmt.Errorf("names of the kernel's functions: %w", err)
	}
	defer f.Close()
	s := &Symbols{names: map[uint64][]string{}}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text()) // address, type, name and sometimes a module
		if len(fields) < 3 || !strings.Contains("tTwW", fields[1]) {
			continue
		}
		at, err := strconv.ParseUint(fields[0], 16, 64)
		if err != nil {
			return nil, fmt.Errorf("names of the kernel's functions: %w", err)
		}
		s.names[at] = append(s.names[at], fields[2])
		if fields[2] == "__bpf_call_base" {
			s.base = at
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("names of the kernel's functions: %w", err)
	}
	if s.base == 0 {
		return nil, errors.New("the kernel does not show the addresses of its functions: set sysctl kernel.kptr_restrict to 0 or 1")
	}
	return s, nil
})
