package manifest

// Observe takes a sample of what came to devices, with what rules, checks and the default have decided. of is nil when nothing runs.
func Observe(devices []string, of *Counts) (*Sample, error) {
	s, err := CountPackets(devices)
	if err == nil && of != nil {
		of.noteRules(s)
	}
	return s, err
}

// noteRules notes in s what rules, checks and the default have decided.
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
