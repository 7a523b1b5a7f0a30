// SPDX-License-Identifier: Apache-2.0

package sample

import "math"

// SamplingError is the error, in percent, of a packet count that is estimated from this many samples. It is half the width of the 95% confidence
// interval, if samples are drawn independently (Phaal and Panchen, "Packet Sampling Basics", sFlow.org). It is infinite without samples.
func SamplingError(samples uint64) float64 {
	return 196 * math.Sqrt(1/float64(samples))
}
