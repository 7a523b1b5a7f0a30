// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"slices"
)

// sweep removes all generations except those in keep, those that devices run, and records. It also removes a record that was on trial.
func (s *State) sweep(keep ...int) error {
	onTrial, err := s.trialNumbers()
	if err != nil {
		return err
	}
	return s.sweepIf(func(n int) bool {
		return !slices.Contains(keep, n) && (!s.isRecord(n) || slices.Contains(onTrial, n))
	})
}

// sweepIf removes unwanted generations, except those that devices run. If a device could not get its old program back, its generation thus stays
// visible to status, and the next change can end it. sweepIf also removes links at the sides of devices without an XDP link, and trials that no
// device runs. It removes trials last, because they show which records belong to them.
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

// removeGeneration removes the pins of a generation. Attached programs stay. It removes the manifest first. If the process dies after that, the
// remaining files cannot be mistaken for a complete generation or a record.
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
