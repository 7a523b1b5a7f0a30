// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/policy"
)

// names reads the sets of domain names.
func (l *lowering) names(p *policy.Policy) (errs policy.Errors) {
	for _, s := range p.Names {
		set := ir.NameSet{Name: s.Name, Names: s.Names}
		if s.File != "" {
			var err error
			if set.Names, err = readNames(beside(p.File, s.File)); err != nil {
				errs = append(errs, placed(p.File, s.Pos, fmt.Sprintf("set %q", s.Name), err)...)
			}
		}
		l.namesNamed[s.Name] = len(l.program.Names)
		l.program.Names = append(l.program.Names, set)
	}
	return errs
}

// readNames reads a list of domain names, in the formats of namesOf. The error names up to 10 lines that cannot be parsed.
func readNames(path string) (names []string, err error) {
	const mostErrors = 10
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var errs []error
	number := 0
	for line := range bytes.Lines(text) {
		number++
		found, err := namesOf(string(line))
		for _, text := range found {
			name, e := policy.Domain(text)
			if e == nil {
				names = append(names, name)
			}
			err = cmp.Or(err, e)
		}
		if err != nil && len(errs) < mostErrors {
			errs = append(errs, fmt.Errorf("%s:%d: %w", path, number, err))
		}
	}
	return names, errors.Join(errs...)
}
