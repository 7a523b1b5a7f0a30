// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"testing"

	"github.com/floodwall/floodwall/internal/compile/image"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/features"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestFormsLoad loads every form of program that this kernel supports: a usual policy whose services are protected by each method, and a policy with
// every key. Continuous integration also runs it on the oldest supported kernel (scripts/kernels).
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
			if features.TCX() == nil {
				for _, h := range []image.Hook{image.TC, image.TCBare} {
					if _, err := p.At(h); err != nil {
						t.Errorf("hook %d: %v", h, err)
					}
				}
			}
			if c.method != ir.MethodListener { // in generic mode only a flag differs
				return
			}
			if _, err := p.Linear(); err != nil {
				t.Errorf("for generic mode: %v", err)
			}
		})
	}
}

// loadableForms returns the forms that this kernel supports.
func loadableForms(t *testing.T) []stackCase {
	cases := []stackCase{{"every key", 0, false, xdpgen.Straight}, {"every key", 0, false, xdpgen.Tables}}
	for method, lacks := range map[ir.CookieMethod]error{
		ir.MethodHost: features.Reqsk(), ir.MethodListener: nil, ir.MethodRouter: features.RawCookies(),
	} {
		if lacks != nil {
			t.Logf("without method %d: %v", method, lacks)
			continue
		}
		cases = append(cases, stackCase{"usual", method, true, xdpgen.Straight}) // the policy attack differs only in the content of a map
	}
	return cases
}
