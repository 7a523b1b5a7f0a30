// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/compile/iptables"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/test/testutil"
)

// targets are the columns of the tables.
var targets = []plan.Target{plan.TargetXDP, plan.TargetNftables, plan.TargetIptables}

// answer is the compiler's result for a policy on a target.
type answer struct {
	stages []plan.Stage     // of the policy's named rules, in their order
	notes  []string         // differences of the target
	left   []plan.LeftCheck // checks that the target does not make, or only in part
	why    string           // why the target cannot run the policy; "" when it can
}

// files contains the files that the examples name.
var files = map[string]string{"blocked.txt": "192.0.2.0/24\n", "names.txt": "evil.example\n", "cookie.secret": "000102030405060708090a0b0c0d0e0f\n"}

// place matches the prefix of a note about a rule or service of the policy.
var place = wording.Regexp(`^(\S+:\d+:\d+: )?(rule|service) "x": `)

// ask compiles a policy for a target.
func ask(text string, target plan.Target) (answer, error) {
	dir, err := os.MkdirTemp("", "policydoc")
	if err != nil {
		return answer{}, err
	}
	defer os.RemoveAll(dir)
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return answer{}, err
		}
	}
	if err := testutil.Write(filepath.Join(dir, "GeoLite2-Country.mmdb"), testutil.Network{Prefix: "192.0.2.0/24", Country: "XX", ASN: 64500},
		testutil.Network{Prefix: "198.51.100.0/24", Country: "YY"}); err != nil {
		return answer{}, err
	}
	c, err := control.CompileSource(filepath.Join(dir, "policy.yaml"), []byte(text))
	if err != nil {
		return answer{}, fmt.Errorf("%w in\n%s", err, text)
	}
	o, err := c.Output(target)
	var refused *plan.StageError
	if errors.As(err, &refused) {
		return answer{why: refused.Cause}, nil
	}
	var refusedByIptables *iptables.Error
	if errors.As(err, &refusedByIptables) {
		return answer{why: refusedByIptables.Cause}, nil
	}
	if err != nil {
		return answer{}, fmt.Errorf("%w in\n%s", err, text)
	}
	a := answer{left: o.Left}
	for _, n := range o.Notes {
		a.notes = append(a.notes, place().ReplaceAllString(n, ""))
	}
	for i, r := range o.Plan.Program.Rules {
		at := o.Plan.Rules[i].Stage
		if (r.Name == "x" || strings.HasPrefix(r.Name, "x:")) && !slices.Contains(a.stages, at) {
			a.stages = append(a.stages, at)
		}
	}
	return a, nil
}
