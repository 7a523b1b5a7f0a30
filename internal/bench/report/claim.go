package report

// Claim is something that an article says, and whether it holds on this machine.
type Claim struct {
	Text     string  `json:"text"`
	Article  string  `json:"article"` // its figure, with the unit
	Here     string  `json:"here"`    // the same figure here; when there is none, why
	Verdict  Verdict `json:"verdict"`
	Unsteady bool    `json:"unsteady,omitempty"` // what it rests on is doubtful
	Rule     string  `json:"rule"`               // it is confirmed when this is so, as in "filter costs up to 25% more than raw"
}

// Verdict is what became of a claim.
type Verdict string

// The verdicts. What was not measured, as for want of a tool, is not measurable here either.
const (
	Confirmed     Verdict = "confirmed"
	Refuted       Verdict = "refuted"
	NotMeasurable Verdict = "not measurable here"
)

// Judge is the verdict on what was measured.
func Judge(holds bool) Verdict { return Choice(holds, Confirmed, Refuted) }

// OpenClaim is a claim before anything was measured.
func OpenClaim(text, article, rule string) Claim {
	return Claim{Text: text, Article: article, Rule: rule, Here: "not measured", Verdict: NotMeasurable}
}

// Found is the claim with what was measured.
func (c Claim) Found(here string, holds, unsteady bool) Claim {
	c.Here, c.Verdict, c.Unsteady = here, Judge(holds), unsteady
	return c
}

// Claims lists what the articles say, of all experiments.
func (r *Report) Claims() (claims []Claim) {
	for _, e := range r.Experiments {
		claims = append(claims, e.Claims...)
	}
	return claims
}

// claimsTable is the claims for people; nil when there are none.
func (o *Outcome) claimsTable() *Table {
	if len(o.Claims) == 0 {
		return nil
	}
	t := &Table{Title: o.Name + ": what the article says", Head: []string{"", "article", "here", "verdict", "it holds when", ""}}
	for _, c := range o.Claims {
		t.AddRow(c.Text, c.Article, c.Here, string(c.Verdict), c.Rule, Choice(c.Unsteady, "~", ""))
		if c.Unsteady {
			t.AddNote("~ unsteady: so are the figures that it rests on.")
		}
	}
	return t
}
