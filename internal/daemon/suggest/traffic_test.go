// SPDX-License-Identifier: Apache-2.0

package suggest_test

import (
	"math/rand/v2"

	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/test/suggesttest"
)

// legitimate returns n packets of a server's usual traffic to 10.10.10.10.
func legitimate(r *rand.Rand, n int) []suggest.Sample {
	return packets(n, func() string { return suggesttest.Legitimate(r) })
}

// packets returns n packets that line describes in the notation of explain.
func packets(n int, line func() string) []suggest.Sample {
	list := make([]suggest.Sample, n)
	for i := range list {
		list[i] = sampleOf(line())
	}
	return list
}

func sampleOf(line string) suggest.Sample {
	frame := suggesttest.Frame(line)
	return suggest.NewSample(sample.Sample{Frame: frame, Length: len(frame)})
}
