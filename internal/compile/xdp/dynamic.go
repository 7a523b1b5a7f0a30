// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"math/bits"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/xdp/entry"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// dynamicPart returns the component with the empty memory of the dynamic sets. The loader copies the entries of the
// previous generation into it.
func dynamicPart(p *ir.Program, numbers map[int]int) component {
	capacities := make([]int, len(numbers))
	buckets := 0
	for set, number := range numbers {
		capacities[number] = p.Sets[set].Max
		buckets += addrs.DynamicBuckets(p.Sets[set].Max)
	}
	if len(capacities) == 0 {
		return component{}
	}
	// The program masks the number of a block, so the number of blocks must be a power of two.
	blocks := uint32(1) << bits.Len(uint(len(capacities)*addrs.LengthsBlocks-1))
	return component{
		constants: map[string]any{"dynamic_lengths_mask": blocks - 1},
		shapes: map[string]image.Shape{
			image.DynamicLengths: {ValueSize: blocks * addrs.LengthsBlockBytes, Entries: 1},
			image.DynamicInfo:    {ValueSize: entry.MarksOffset + addrs.MarkBytes, Entries: 1},
			image.Dynamic:        {ValueSize: addrs.BucketBytes, Entries: uint32(buckets)},
			image.DynamicTexts:   {ValueSize: addrs.WhyTextsBytes, Entries: 1},
			image.DynamicWhy:     {ValueSize: 8, Entries: uint32(buckets+1) / 2},
		},
		fill: func(memory map[string][]byte) error {
			return DynamicMemory(memory).Format(capacities...)
		},
	}
}

// DynamicMemory returns the memory of the dynamic sets. memory has the memory of all maps of a program, by name.
func DynamicMemory(memory map[string][]byte) addrs.DynamicMemory {
	info := memory[image.DynamicInfo]
	sets, own := min(len(info), image.OwnOffset), min(len(info), entry.MarksOffset)
	return addrs.DynamicMemory{
		Info:    info[:sets],
		Own:     info[sets:own],
		Marks:   info[own:],
		Buckets: memory[image.Dynamic],
		Texts:   memory[image.DynamicTexts],
		Why:     memory[image.DynamicWhy],
		Lengths: memory[image.DynamicLengths],
	}
}
