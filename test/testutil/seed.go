package testutil

import (
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Long reports whether the tests run in their long form (make test-long): with more cases, and random ones each time.
func Long() bool { return os.Getenv("FLOODWALL_LONG") != "" }

// Scaled is the number of cases of a test in its short and in its long form.
func Scaled(short, long int) int {
	if Long() {
		return long
	}
	return short
}

// Seed is the seed of what is random in a test. FLOODWALL_SEED sets it. Otherwise the long form draws one, and the short
// form always takes the same for a test: a change must not fail because luck found an old bug. The log of a test that
// fails says the seed.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := fixedSeed(t.Name())
	if Long() {
		seed = rand.Uint64()
	}
	if text := os.Getenv("FLOODWALL_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 0, 64); err != nil {
			t.Fatalf("FLOODWALL_SEED: %v", err)
		}
	}
	t.Logf("FLOODWALL_SEED=%d", seed)
	return seed
}

// fixedSeed makes a seed of a test's name, so that tests do not share their random numbers.
func fixedSeed(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64()
}

// Random is a source of random numbers from Seed.
func Random(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Seed(t), 0))
}
