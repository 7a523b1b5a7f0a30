// SPDX-License-Identifier: Apache-2.0

package image

import (
	"testing"

	"github.com/cilium/ebpf/asm"
)

// TestClearedInOrder searches for atomic operations that clear bits and do not return the old value. On arm64 such operations do not order memory
// accesses (Documentation/atomic_t.txt of Linux). The bit of a flow that another CPU records at the same time could be lost. No machine that runs the
// tests would show this.
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
