// SPDX-License-Identifier: Apache-2.0

package manifest

// Observe returns a sample of two counts: the packets that devices have received, and the decisions of rules, checks and the default. `of` is nil when
// no policy runs.
func Observe(devices []string, of *Counts) (*Sample, error) {
	s, err := CountPackets(devices)
	if err == nil && of != nil {
		of.noteRules(s)
	}
	return s, err
}

// noteRules adds the numbers of decisions of rules, checks and the default to s.
func (c *Counts) noteRules(s *Sample) {
	for i, r := range c.Manifest.Rules {
		if n := c.Rule(i, r).Packets; n > 0 {
			s.Rules[r.Name] = n
		}
		if !r.Observe {
			s.All += c.Rule(i, r).Packets
		}
	}
	s.All += c.ByDefault().Packets
	for _, n := range c.Checks() {
		s.All += n.Packets
	}
}
