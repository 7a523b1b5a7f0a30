// SPDX-License-Identifier: Apache-2.0

package control

import "context"

// stepLists are all lists of steps.
var stepLists = map[string][]step{
	"decide": decide, "loadXDP": loadXDP, "loadNetfilter": loadNetfilter, "switchXDP": switchXDP, "switchNetfilter": switchNetfilter,
	"tidyTrial": tidyTrial, "tidyMove": tidyMove, "tidyApply": tidyApply, "confirming": confirming, "afterConfirm": afterConfirm,
	"givingUp": givingUp, "afterGivingUp": afterGivingUp, "goingBack": goingBack, "afterGoingBack": afterGoingBack,
	"exchanging": exchanging, "repairing": repairing, "mending": mending, "finishingTrial": finishingTrial,
}

// StepLists returns the names of all lists of steps.
func StepLists() (names []string) {
	for name := range stepLists {
		names = append(names, name)
	}
	return names
}

// StepNames returns the names of the steps of a list.
func StepNames(list string) (names []string) {
	for _, s := range stepLists[list] {
		names = append(names, s.name)
	}
	return names
}

// FailStep makes a step of a list return err in place of running. `end` restores the step, and returns true if the step was reached.
func FailStep(list string, i int, err error) (end func() (reached bool)) {
	s, reached := &stepLists[list][i], false
	does := s.do
	s.do = func(*transaction, context.Context) error {
		reached = true
		return err
	}
	return func() bool {
		s.do = does
		return reached
	}
}
