package datapath

import (
	"errors"
	"fmt"
	"os"
	"slices"
)

// sweep removes generations, except these, those that devices run, and records. A record that was on trial is as
// others.
func (s *State) sweep(keep ...int) error {
	onTrial, err := s.trialNumbers()
	if err != nil {
		return err
	}
	return s.sweepIf(func(n int) bool {
		return !slices.Contains(keep, n) && (!s.isRecord(n) || slices.Contains(onTrial, n))
	})
}

// sweepIf removes generations, except those that devices run: what a device could not be given back stays visible to
// status, and the next change can end it. So are links for sides of devices that have none for XDP. Trials that no device
// runs are remains; they go last, since they tell which records are theirs.
func (s *State) sweepIf(unwanted func(n int) bool) error {
	v, err := s.situation()
	if err != nil {
		return err
	}
	defer v.close()
	running, trials := map[int]bool{}, map[int]bool{}
	for _, d := range v.devices {
		r := v.roles[d.program]
		running[r.during], running[r.after] = true, true
		if r.trial != nil {
			trials[r.trial.New] = true
			running[r.trial.New], running[r.trial.Old] = true, true
		}
	}
	numbers, err := s.generations()
	errs := []error{err}
	for _, n := range numbers {
		if !running[n] && unwanted(n) {
			errs = append(errs, s.removeGeneration(n))
		}
	}
	numbers, err = s.trialNumbers()
	errs = append(errs, err)
	for _, n := range numbers {
		if !trials[n] {
			errs = append(errs, s.removeTrial(n))
		}
	}
	return errors.Join(append(errs, s.sweepSides(v.devices, false))...)
}

// removeGeneration removes a generation's pins. What is attached stays. The manifest goes first: without it, nothing
// that is left if the process dies can be taken for a whole generation or a record.
func (s *State) removeGeneration(n int) error {
	dir := s.path(generationName(n))
	err := s.checkNoLinks(generationName(n))
	if err == nil {
		err = removeUnused(dir + "/" + pinManifest)
	}
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err != nil {
		return fmt.Errorf("removing generation %d: %w", n, err)
	}
	return nil
}

func (s *State) removeTrial(n int) error {
	err := s.checkNoLinks(trialName(n))
	if err == nil {
		err = os.RemoveAll(s.path(trialName(n)))
	}
	if err != nil {
		return fmt.Errorf("removing the trial of generation %d: %w", n, err)
	}
	return nil
}
