// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"bytes"
	"fmt"
)

// Differences returns the machine's writes to maps that differ from the kernel's content now, a line each.
func (m *Machine) Differences() (lines []string, err error) {
	for _, t := range m.tables {
		for _, r := range []*region{t.object, t.values} {
			if r == nil {
				continue
			}
			clear(t.fetched)
			for offset, b := range r.written {
				now := make([]byte, 1)
				if err := r.read(offset, now); err != nil {
					return nil, err
				}
				if now[0] != b {
					lines = append(lines, fmt.Sprintf("%s: byte %d is %d, in the kernel %d", r.name, offset, b, now[0]))
				}
			}
		}
		if !t.isHash() {
			continue
		}
		for key, e := range t.elements {
			value, err := t.LookupBytes([]byte(key))
			if err != nil {
				return nil, err
			}
			if e == nil && value != nil || e != nil && !bytes.Equal(e.bytes[m.elementValue(t):][:t.ValueSize()], value) {
				lines = append(lines, fmt.Sprintf("%s: element %x: %v, in the kernel %x", t.object.name, key, e, value))
			}
		}
	}
	return lines, nil
}
