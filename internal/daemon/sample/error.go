package sample

import "math"

// SamplingError is the error, in percent of the count, with which a count of samples stands for all packets that the samples
// were drawn from: half the width of its 95% confidence interval, when samples are drawn independently (Phaal and Panchen, "Packet
// Sampling Basics", sFlow.org). It is infinite without samples.
func SamplingError(samples uint64) float64 {
	return 196 * math.Sqrt(1/float64(samples))
}
