// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Long reports whether the tests run in their long form (make test-long). This form has more cases, and new random cases each time.
func Long() bool { return os.Getenv("FLOODWALL_LONG") != "" }

// Scaled returns the number of cases of a test. This is the parameter long in the long form, and the parameter short otherwise.
func Scaled(short, long int) int {
	if Long() {
		return long
	}
	return short
}

// Seed returns the seed for random numbers in a test. FLOODWALL_SEED sets it. Otherwise the long form draws a random seed. The short form always uses
// the same seed for a test, because a change must not fail when chance finds an old bug. The log of a failed test has the seed.
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

// fixedSeed returns a seed that depends on a test's name, so that tests have different random numbers.
func fixedSeed(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64()
}

// Random returns a source of random numbers that starts with Seed.
func Random(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Seed(t), 0))
}
