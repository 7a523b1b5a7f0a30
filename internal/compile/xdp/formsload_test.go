package xdp_test

import (
	"testing"

	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/features"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestFormsLoad loads every form of program that this kernel can have: services protected by each
// method beside a usual policy, and every key of a policy. Continuous integration runs it on the oldest supported kernel, too
// (scripts/kernels).
func TestFormsLoad(t *testing.T) {
	testutil.RequireRoot(t)
	for _, c := range loadableForms(t) {
		t.Run(c.String(), func(t *testing.T) {
			x := c.generate(t)
			x.Egress = x.Egress && features.Egress() == nil
			p, err := datapath.Load(&x.Image, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if c.method != ir.MethodListener { // generic mode differs in a flag only
				return
			}
			if _, err := p.Linear(); err != nil {
				t.Errorf("for generic mode: %v", err)
			}
		})
	}
}

// loadableForms are the forms that this kernel can have.
func loadableForms(t *testing.T) []stackCase {
	cases := []stackCase{{"every key", 0, false, xdpgen.Straight}, {"every key", 0, false, xdpgen.Tables}}
	for method, lacks := range map[ir.CookieMethod]error{
		ir.MethodHost: features.Reqsk(), ir.MethodListener: nil, ir.MethodRouter: features.RawCookies(),
	} {
		if lacks != nil {
			t.Logf("without method %d: %v", method, lacks)
			continue
		}
		cases = append(cases, stackCase{"usual", method, true, xdpgen.Straight}) // attack differs in the content of a map
	}
	return cases
}
