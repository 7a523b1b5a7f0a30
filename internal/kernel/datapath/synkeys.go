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
	present, previous [2]uint64 // of cookies
	rotated           uint64    // nanoseconds of CLOCK_MONOTONIC: cookies of slots that began before have the previous key
	hash              [2]uint64 // of flows, for as long as their table lives
}

// Where the fields are, in words.
const (
	wordPresent  = 0
	wordPrevious = 2
	wordRotated  = 4
	wordHash     = 5
)

// cookieLife is how long a cookie can be valid: its time slot and the next.
const cookieLife = 2 * time.Duration(1<<image.CookieSlot)

// sentNote is what note_cookie() of bpf/cookie.h notes at a time of CLOCK_MONOTONIC.
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

// initKeys draws all keys, before any program uses them.
func initKeys(memory []byte) {
	rand.Read(memory) // does not fail
	atomic.StoreUint64(&wordsOf(memory)[wordRotated], 0)
}

// rotateKeys draws a new key for cookies, and keeps the present one as the previous for those on their way. It does
// nothing, and returns false, while there can be cookies of the one before. The programs go on meanwhile: nobody reads
// the previous key when it is written, and whoever sees the new time finds it there.
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

// RotateKeys gives the generation that runs a new key for SYN cookies; those on their way remain valid. It reports
// whether it did: not when the last time is less than some two minutes ago, nor when nothing is protected. The caller
// holds the lock.
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
