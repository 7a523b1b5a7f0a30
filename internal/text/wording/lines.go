// SPDX-License-Identifier: Apache-2.0

package wording

import (
	"fmt"
	"strings"
)

// Text collects lines.
type Text struct{ strings.Builder }

// Line adds a line, without control characters.
func (t *Text) Line(format string, args ...any) {
	t.WriteString(Printable(fmt.Sprintf(format, args...)) + "\n")
}
