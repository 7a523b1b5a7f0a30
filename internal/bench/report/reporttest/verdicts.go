package bench

import "strings"

func verdicts(claims []Claim) string {
	var all []string
	for _, c := range claims {
		all = append(all, string(c.Verdict)+choice(c.Unsteady, "~", ""))
	}
	return strings.Join(all, ", ")
}
