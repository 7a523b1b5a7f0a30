// This file is for tests of what experiments conclude.

package experiment

import (
	"strings"

	"github.com/floodwall/floodwall/internal/lab/report"
)

// Verdicts is the verdicts on these claims, those that rest on doubtful figures with a ~.
func Verdicts(claims []report.Claim) string {
	var all []string
	for _, c := range claims {
		all = append(all, string(c.Verdict)+report.Choice(c.Unsteady, "~", ""))
	}
	return strings.Join(all, ", ")
}
