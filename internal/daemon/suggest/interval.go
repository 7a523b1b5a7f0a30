// SPDX-License-Identifier: Apache-2.0

package suggest

import "math"

// Share is a share of a number of samples.
type Share struct {
	Packets int     `json:"packets"`
	Of      int     `json:"of"`
	Low     float64 `json:"low"`  // the limits of the 95% confidence interval of the share in all traffic from which
	High    float64 `json:"high"` // the samples were drawn; 0 and 1 without samples
}

// share returns a share with its confidence interval by Wilson's score (E. B. Wilson, "Probable Inference, the Law of Succession, and Statistical
// Inference", JASA 22, 1927).
func share(packets, of int) Share {
	if of == 0 {
		return Share{High: 1}
	}
	const z = 1.959964
	n, p := float64(of), float64(packets)/float64(of)
	middle := p + z*z/(2*n)
	half := z * math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	return Share{packets, of, max(0, (middle-half)/(1+z*z/n)), min(1, (middle+half)/(1+z*z/n))}
}

// Part returns the share as a number from 0 to 1.
func (s Share) Part() float64 {
	if s.Of == 0 {
		return 0
	}
	return float64(s.Packets) / float64(s.Of)
}

// ShareOf returns the share of packets among of samples, with its confidence interval.
func ShareOf(packets, of int) Share { return share(packets, of) }
