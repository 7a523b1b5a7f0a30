// SPDX-License-Identifier: Apache-2.0

// This file is for tests of the conclusions of experiments.

package experiment

import (
	"strings"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
)

// Verdicts returns the verdicts on these claims. A ~ marks verdicts that are based on doubtful figures.
func Verdicts(claims []report.Claim) string {
	var all []string
	for _, c := range claims {
		all = append(all, string(c.Verdict)+report.Choice(c.Unsteady, "~", ""))
	}
	return strings.Join(all, ", ")
}
