// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// Rest makes some protections of the generation answer no SYNs for a time. numbers are the numbers of these protections. Cookies that were sent
// remain valid. Rest returns true if one of the protections has answered recently, because then some cookies may not have come back yet.
func (g *Generation) Rest(numbers []int, length time.Duration) (answered bool, err error) {
	memory, err := g.Memory(image.ProtectionStates)
	if err != nil {
		return false, err
	}
	states, now := memory[image.ProtectionStates], uint64(image.Monotonic())
	for _, n := range numbers {
		if (n+1)*image.ProtectionStateSize > len(states) {
			continue
		}
		state := states[n*image.ProtectionStateSize:]
		activeUntil, refusedUntil := wordAt(state, 0), wordAt(state, 8)
		answered = answered || atomic.LoadUint64(activeUntil) > now
		atomic.StoreUint64(refusedUntil, now+uint64(length))
	}
	return answered, nil
}

// wordAt returns a pointer to a word of a map's memory.
func wordAt(memory []byte, at int) *uint64 { return (*uint64)(unsafe.Pointer(&memory[at])) }
