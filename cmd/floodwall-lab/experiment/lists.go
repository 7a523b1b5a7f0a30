package experiment

import "github.com/floodwall/floodwall/cmd/floodwall-lab/rig"

// eachList calls measure with a list. If the options name a list, it is this list. Otherwise there is a list of random addresses for each size. A
// list is made only when it is measured, because the largest lists need much memory.
func eachList(s *rig.Session, sizes []int, measure func(*rig.List) error) error {
	s.Steps.Show("making addresses")
	if s.List != "" {
		l, err := rig.ReadList(s.List)
		if err != nil {
			return err
		}
		return measure(l)
	}
	for _, n := range sizes {
		s.Steps.Show("making addresses")
		if err := measure(rig.RandomHosts(n)); err != nil {
			return err
		}
	}
	return nil
}
