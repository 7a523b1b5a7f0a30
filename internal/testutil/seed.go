package testutil

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Seed is the seed of what is random in a test. The log of a test that fails says it, and FLOODWALL_SEED repeats it.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("FLOODWALL_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 0, 64); err != nil {
			t.Fatalf("FLOODWALL_SEED: %v", err)
		}
	}
	t.Logf("FLOODWALL_SEED=%d", seed)
	return seed
}

// Random is a source of random numbers from Seed.
func Random(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Seed(t), 0))
}
