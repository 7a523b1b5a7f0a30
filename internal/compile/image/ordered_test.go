package image

import (
	"testing"

	"github.com/cilium/ebpf/asm"
)

// TestClearedInOrder finds atomic operations that clear bits and do not return the old value. On arm64 these order no memory
// (Documentation/atomic_t.txt of Linux): the bit of a flow that another CPU notes meanwhile could be lost. No machine of the tests would show it.
func TestClearedInOrder(t *testing.T) {
	cleared := 0
	for name, p := range Load().Programs {
		for i, ins := range p.Instructions {
			switch ins.OpCode.AtomicOp() {
			case asm.AndAtomic:
				t.Errorf("%s: instruction %d clears bits, and orders nothing: %v", name, i, ins)
			case asm.FetchAnd:
				cleared++
			}
		}
	}
	if cleared == 0 {
		t.Error("no program clears bits: the test finds nothing")
	}
}
