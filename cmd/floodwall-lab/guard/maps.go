// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// table is a map of the loaded program, as part of the memory.
type table struct {
	*ebpf.Map
	object *region // struct bpf_array or another map structure; an array's values follow it
	values *region // of a per-CPU array: the values of this CPU
	stride uint64  // between values
	mapped []byte  // the kernel's memory of an array, if it can be mapped

	elements map[string]*region // of a hash: elements that were looked up or written; nil: deleted
	fetched  map[uint64][]byte  // of an array that cannot be mapped: the values read so far
}

// openTable opens a map by its identifier, and places it in the memory.
func (m *Machine) openTable(id ebpf.MapID) (t *table, err error) {
	if t := m.tables[id]; t != nil {
		return t, nil
	}
	opened, err := ebpf.NewMapFromID(id)
	if err != nil {
		return nil, fmt.Errorf("map %d: %w", id, err)
	}
	t = &table{Map: opened, stride: roundUp(uint64(opened.ValueSize())), elements: map[string]*region{}, fetched: map[uint64][]byte{}}
	name := fmt.Sprintf("map %d (%s)", id, opened.Type())
	t.object = m.add(&region{name: name, size: m.layout.arrayValues})
	t.object.read = func(uint64, []byte) error { return errors.New("its administration is not emulated") }
	count := uint64(opened.MaxEntries())
	switch opened.Type() {
	case ebpf.Array:
		t.object.shared = true
		t.object.size += count * t.stride
		t.object.read = m.behindHeader(t.readArray)
		if opened.Flags()&unix.BPF_F_MMAPABLE != 0 {
			// If the values of an array cannot be mapped, they are read one at a time.
			t.mapped, _ = unix.Mmap(opened.FD(), 0, int(count*t.stride), unix.PROT_READ, unix.MAP_SHARED)
		}
	case ebpf.PerCPUArray:
		t.values = m.add(&region{name: name, size: count * t.stride, read: func(offset uint64, into []byte) error {
			return t.readFetched(offset, into, m.fetchPart(t))
		}})
		t.object.size += count * 8 // a pointer each
		t.object.read = m.behindHeader(func(offset uint64, into []byte) error {
			if offset%8 != 0 || len(into) != 8 {
				return errors.New("part of a pointer")
			}
			putNumber(into, t.values.base+offset/8*t.stride)
			return nil
		})
	}
	m.tables[id] = t
	m.byObject[t.object.base] = t
	return t, nil
}

func roundUp(n uint64) uint64 { return (n + 7) &^ 7 }

// behindHeader reads the memory after struct bpf_array.
func (m *Machine) behindHeader(read func(uint64, []byte) error) func(uint64, []byte) error {
	return func(offset uint64, into []byte) error {
		if offset < m.layout.arrayValues {
			return errors.New("its administration is not emulated")
		}
		return read(offset-m.layout.arrayValues, into)
	}
}

func (t *table) readArray(offset uint64, into []byte) error {
	if t.mapped != nil {
		copy(into, t.mapped[offset:])
		return nil
	}
	return t.readFetched(offset, into, func(key uint32) ([]byte, error) { return t.LookupBytes(key) })
}

// readFetched reads within one value, which is fetched from the kernel once.
func (t *table) readFetched(offset uint64, into []byte, fetch func(uint32) ([]byte, error)) error {
	key := offset / t.stride
	value, ok := t.fetched[key]
	if !ok {
		got, err := fetch(uint32(key))
		if err != nil {
			return err
		}
		value = make([]byte, t.stride)
		copy(value, got)
		t.fetched[key] = value
	}
	if offset%t.stride+uint64(len(into)) > t.stride {
		return errors.New("across two values")
	}
	copy(into, value[offset%t.stride:])
	return nil
}

// fetchPart fetches the part of a value of the machine's CPU.
func (m *Machine) fetchPart(t *table) func(uint32) ([]byte, error) {
	return func(key uint32) ([]byte, error) {
		all, err := t.LookupBytes(key)
		if err != nil || uint64(len(all)) < uint64(m.CPU+1)*t.stride {
			return nil, errors.Join(err, fmt.Errorf("no part of CPU %d", m.CPU))
		}
		return all[uint64(m.CPU)*t.stride:], nil
	}
}

// forget drops written values, and read values, as the kernel's content may have changed.
func (t *table) forget() {
	t.object.written = nil
	if t.values != nil {
		t.values.written = nil
	}
	clear(t.elements)
	clear(t.fetched)
}

func (t *table) close() error {
	err := t.Map.Close()
	if t.mapped != nil {
		err = errors.Join(err, unix.Munmap(t.mapped))
	}
	return err
}

// isHash reports whether the map's elements are struct htab_elem.
func (t *table) isHash() bool { return t.Type() == ebpf.Hash || t.Type() == ebpf.LRUHash }

// element returns the element of a key in a hash: struct htab_elem, with a header of zeros. So an element of an LRU map looks as if it had not been
// used recently. nil: there is none.
func (m *Machine) element(t *table, key []byte) (*region, error) {
	if !t.isHash() {
		return nil, fmt.Errorf("map of type %s as a hash", t.Type())
	}
	if r, ok := t.elements[string(key)]; ok {
		return r, nil
	}
	value, err := t.LookupBytes(key)
	if err != nil {
		return nil, err
	}
	if value == nil {
		t.elements[string(key)] = nil
		return nil, nil
	}
	return m.setElement(t, key, value), nil
}

// setElement makes an element.
func (m *Machine) setElement(t *table, key, value []byte) *region {
	bytes := make([]byte, m.elementValue(t)+t.stride)
	copy(bytes[m.layout.hashKey:], key)
	copy(bytes[m.elementValue(t):], value)
	r := m.addPassing(t.object.name+": element", bytes)
	r.shared = true
	t.elements[string(key)] = r
	return r
}

// elementValue returns the offset of the value in an element.
func (m *Machine) elementValue(t *table) uint64 {
	return m.layout.hashKey + roundUp(uint64(t.KeySize()))
}
