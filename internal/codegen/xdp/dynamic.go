package xdp

import (
	"github.com/floodwall/floodwall/internal/codegen/xdp/entry"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/xdp"
)

// dynamicPart is the component with the memory of the dynamic sets, empty; the loader copies the entries of the
// generation before.
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
	return component{
		shapes: map[string]xdp.Shape{
			xdp.DynamicInfo:  {ValueSize: entry.MarksOffset + addrs.MarkBytes, Entries: 1},
			xdp.Dynamic:      {ValueSize: addrs.BucketBytes, Entries: uint32(buckets)},
			xdp.DynamicTexts: {ValueSize: addrs.WhyTextsBytes, Entries: 1},
			xdp.DynamicWhy:   {ValueSize: 8, Entries: uint32(buckets+1) / 2},
		},
		fill: func(memory map[string][]byte) error {
			return DynamicMemory(memory).Format(capacities...)
		},
	}
}

// DynamicMemory finds the memory of the dynamic sets among a program's maps.
func DynamicMemory(memory map[string][]byte) addrs.DynamicMemory {
	info := memory[xdp.DynamicInfo]
	sets, own := min(len(info), xdp.OwnOffset), min(len(info), entry.MarksOffset)
	return addrs.DynamicMemory{
		Info:    info[:sets],
		Own:     info[sets:own],
		Marks:   info[own:],
		Buckets: memory[xdp.Dynamic],
		Texts:   memory[xdp.DynamicTexts],
		Why:     memory[xdp.DynamicWhy],
	}
}
