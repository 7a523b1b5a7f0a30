// This file makes values when they are first used, as most commands need few of those that a package has.

package wording

import (
	"regexp"
	"sync"
)

// Regexp is a regular expression (regexp/syntax) that is compiled when it is first asked for: to compile all of the program takes a
// millisecond of each start. It panics then when the pattern is wrong; a test compiles those of the program.
func Regexp(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
