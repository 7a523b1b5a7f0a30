// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/plan"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestProtectVerifier loads large policies with as much protection as possible, by each method and in both forms. In short runs, the router's method
// is tested only with straight code, and the listener's method only with tables.
func TestProtectVerifier(t *testing.T) {
	for name, method := range map[string]ir.CookieMethod{
		"host": ir.MethodHost, "listener": ir.MethodListener, "router": ir.MethodRouter,
	} {
		for _, form := range []xdpgen.Form{xdpgen.Straight, xdpgen.Tables} {
			if method != ir.MethodHost && (method == ir.MethodRouter) != (form == xdpgen.Straight) && !testutil.Long() {
				continue
			}
			t.Run(name+", "+string(form), func(t *testing.T) {
				t.Parallel()
				s := subject.Lower(t, largest(subject.AllChecks(), 56, 7, 600))
				protect(s.Program)
				by := slices.Repeat([]ir.Handshake{{Method: method}}, len(s.Program.Protections))
				x, err := xdpgen.Generate(s.Program, xdpgen.Options{Form: form, Protect: by})
				if err != nil {
					t.Fatal(err)
				}
				testutil.RequireRoot(t)
				n := processed(t, x)
				t.Logf("%d instructions processed", n)
				if n > subject.MostVerified {
					t.Errorf("the verifier processed %d instructions, want at most %d", n, subject.MostVerified)
				}
			})
		}
	}
}

// protect adds to a program 20 protected services with all the limits that they can have.
func protect(p *ir.Program) {
	limit := func() int {
		p.Limits = append(p.Limits, ir.Limit{Rule: "syn", Rate: 1000, Per: time.Second, Burst: 1000})
		return len(p.Limits) - 1
	}
	for i := range uint32(20) {
		p.Protections = append(p.Protections, ir.Protection{Service: "s", Start: limit(), Stop: limit(),
			Limits: []int{limit(), limit(), limit(), limit(), limit()}, Flows: 10_000})
		p.Rules = append(p.Rules, ir.Rule{Name: fmt.Sprintf("s%d:syn", i), Verdict: ir.Pass, Protect: len(p.Protections), Match: []ir.Match{
			{Field: packet.DPort, Values: []ir.Range{{First: 50 + i, Last: 50 + i}}}}})
	}
}

// TestUnprotected checks that a program without protections contains neither their code nor their maps.
func TestUnprotected(t *testing.T) {
	spec, err := subject.Lower(t, "default: drop").Forms(t)[0].Image.Spec()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{image.Protections, image.ProtectionStates, image.Flows, image.FlowFilter, image.CookiesSent, image.SynKeys, "askers"} {
		if spec.Maps[name] != nil {
			t.Errorf("the program has the map %s", name)
		}
	}
	for _, name := range []string{"protect", "flow_state", "make_syn_ack", "read_options"} {
		if offsets, _ := spec.Programs[image.Program].Instructions.SymbolOffsets(); offsets[name] > 0 {
			t.Errorf("the program has the function %s", name)
		}
	}
}

// TestProtectStays checks that no optimization drops, merges or moves a rule with a protection.
func TestProtectStays(t *testing.T) {
	s := subject.Lower(t, "default: drop\nrules: [{port: tcp/80, then: pass}, {port: tcp/81, then: pass}, {proto: tcp, state: established, then: pass}]")
	rule := func(port uint32, protection int) ir.Rule {
		return ir.Rule{Name: fmt.Sprintf("web%d:syn", port), Unnamed: true, Verdict: ir.Pass, Protect: protection,
			Match: []ir.Match{{Field: packet.DPort, Values: []ir.Range{{First: port, Last: port}}}}}
	}
	s.Program.Protections = []ir.Protection{always(), always(), always()}
	s.Program.Rules = append(s.Program.Rules, rule(80, 1), rule(82, 2), rule(83, 3))
	optimized, notes := compile.Optimize(s.Program)
	kept := 0
	for _, r := range optimized.Rules {
		if r.Protect > 0 {
			kept++
		}
	}
	if kept != 3 || len(notes) != 1 || !strings.Contains(notes[0], `"web80:syn" protects nothing`) {
		t.Errorf("%d of 3 protections are left, notes %q", kept, notes)
	}
	var place *plan.StageError
	if _, err := plan.Hoist(s.Program, plan.TargetXDP); !errors.As(err, &place) {
		t.Errorf("protection behind the rule of established connections: %v", err)
	}
}
