// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"crypto/rand"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// synKeys is struct syn_keys of bpf/flow.h.
type synKeys struct {
	present, previous [2]uint64 // keys of cookies
	rotated           uint64    // when the present key was set, in nanoseconds of CLOCK_MONOTONIC; cookies of earlier time slots have the previous key
	hash              [2]uint64 // the key of the hash of flows, which does not change while the flow table exists
}

// The offsets of the fields, in words.
const (
	wordPresent  = 0
	wordPrevious = 2
	wordRotated  = 4
	wordHash     = 5
)

// cookieLife is the longest time for which a cookie can be valid: its time slot and the next one.
const cookieLife = 2 * time.Duration(1<<image.CookieSlot)

// sentNote returns the mark that note_cookie() of bpf/cookie.h writes at the time now of CLOCK_MONOTONIC.
func sentNote(now time.Duration) byte { return image.SentEver | byte(now>>image.CookieSlot) }

func readKeys(memory []byte) (k synKeys) {
	w := wordsOf(memory)
	for i := range 2 {
		k.present[i] = atomic.LoadUint64(&w[wordPresent+i])
		k.previous[i] = atomic.LoadUint64(&w[wordPrevious+i])
		k.hash[i] = atomic.LoadUint64(&w[wordHash+i])
	}
	k.rotated = atomic.LoadUint64(&w[wordRotated])
	return k
}

// initKeys sets all keys to random values, before any program uses them.
func initKeys(memory []byte) {
	rand.Read(memory) // does not fail
	atomic.StoreUint64(&wordsOf(memory)[wordRotated], 0)
}

// rotateKeys sets a new random key for cookies. The present key becomes the previous key, for cookies that were sent. While cookies of the previous
// key may still be valid, rotateKeys does nothing and returns false. Programs may run meanwhile: none reads the previous key while it is written, and
// a program that sees the new time also sees the new key.
func rotateKeys(memory []byte) bool {
	w, k := wordsOf(memory), readKeys(memory)
	now := image.Monotonic()
	if now < time.Duration(k.rotated)+cookieLife {
		return false
	}
	drawn := make([]byte, 16)
	rand.Read(drawn)
	for i, word := range k.present {
		atomic.StoreUint64(&w[wordPrevious+i], word)
	}
	atomic.StoreUint64(&w[wordRotated], uint64(now))
	for i, word := range wordsOf(drawn) {
		atomic.StoreUint64(&w[wordPresent+i], word)
	}
	return true
}

// RotateKeys sets a new key for SYN cookies in the running generation, and returns true if it did. Cookies that were sent remain valid. It returns
// false if the last new key is less than about two minutes old, or if no service is protected. The caller must hold the lock.
func (s *State) RotateKeys() (bool, error) {
	m, err := s.mapOf(func(g *Generation) (*ebpf.Map, error) { return g.open(image.SynKeys) })
	if m == nil || err != nil {
		return false, err
	}
	defer m.Close()
	memory, err := mapMemory(m, image.SynKeysSize)
	if err != nil {
		return false, fmt.Errorf("map %s: %w", image.SynKeys, err)
	}
	defer unmap(memory)
	return rotateKeys(memory), nil
}
