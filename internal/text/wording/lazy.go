// SPDX-License-Identifier: Apache-2.0

// This file creates values at their first use, because most commands need few of a package's values.

package wording

import (
	"regexp"
	"sync"
)

// Regexp returns a function that compiles a regular expression (regexp/syntax) at its first call. The compilation of all patterns of the program
// would take a millisecond of every start. The call panics if the pattern is invalid. A test compiles all patterns of the program.
func Regexp(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
