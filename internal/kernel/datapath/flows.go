// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"unsafe"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// Flows maps the program's flow table into memory. The table is valid until its Close. It is nil when the program protects no service.
func (p *Program) Flows() (*Table, error) {
	memory, release, err := p.Memory(image.Flows, image.FlowFilter, image.SynKeys)
	if err != nil {
		return nil, err
	}
	return newFlows(memory, release), nil
}

// Flows maps the generation's flow table into memory. The table is valid until the generation is closed. It is nil when the generation protects no
// service.
func (g *Generation) Flows() (*Table, error) {
	memory, err := g.Memory(image.Flows, image.FlowFilter, image.SynKeys)
	if err != nil {
		return nil, err
	}
	return newFlows(memory, func() {}), nil
}

func newFlows(memory map[string][]byte, release func()) *Table {
	table, keys := memory[image.Flows], memory[image.SynKeys]
	if table == nil || keys == nil {
		release()
		return nil
	}
	return New(wordsOf(table), wordsOf(memory[image.FlowFilter]), readKeys(keys).hash, release)
}

// wordsOf returns the memory of a map as 64-bit words.
func wordsOf(memory []byte) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(memory))), len(memory)/8)
}
