package datapath

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// Rest has some protections of the generation, by their numbers, answer no more SYNs for a time. Cookies on their way
// remain good. It reports whether any of them has answered of late, so that there may be some.
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

// wordAt is a word of a map's memory.
func wordAt(memory []byte, at int) *uint64 { return (*uint64)(unsafe.Pointer(&memory[at])) }
