// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/policy"
)

// Signature is the tests of a rule against an attack, without the rule's name and action. Its text is used only for people and for files.
type Signature struct {
	match        policy.Match
	tests        string // the text of match in the policy's notation
	rule, header *ir.Program
}

// ReadSignature parses a rule of one line, in the notation of a policy's rules. It also returns whether the rule observes. It returns an error when
// the rule is not valid, when it can match no packet, and when it has a key that signatures must not have.
func ReadSignature(line string) (g *Signature, observes bool, err error) {
	r, err := policy.ParseRule(line)
	if err != nil {
		return nil, false, fmt.Errorf("rule %s: %w", line, err)
	}
	g, err = SignatureOf(r)
	return g, r.Observe, err
}

// SignatureOf returns the signature of a valid rule. It returns the same errors as ReadSignature.
func SignatureOf(r *policy.Rule) (*Signature, error) {
	m := policy.Match{
		Family: r.Match.Family, From: r.Match.From, To: r.Match.To, Proto: r.Match.Proto, Fragment: r.Match.Fragment, SPort: r.Match.SPort, Port: r.Match.Port,
		Flags: r.Match.Flags, ICMP: r.Match.ICMP, Length: r.Match.Length, TTL: r.Match.TTL, DSCP: r.Match.DSCP, DNS: r.Match.DNS, Payload: r.Match.Payload,
	}
	only := policy.Rule{Pos: r.Pos, Name: r.Name, Named: r.Named, Match: m, Then: policy.Drop, Observe: r.Observe}
	if !reflect.DeepEqual(*r, only) || m.Payload != nil && m.Payload.Contains != nil {
		return nil, fmt.Errorf("rule %q has a key that no signature has", r.Name)
	}
	return newSignature(m)
}

func newSignature(m policy.Match) (g *Signature, err error) {
	g = &Signature{match: m, tests: strings.Join(m.Words(), ", ")}
	if g.rule, err = compile.Rule(g.As("signature", false)); err != nil {
		return nil, fmt.Errorf("rule {%s}: %w", g.tests, err)
	}
	g.header = headerOf(g.rule)
	return g, nil
}

// As returns a policy rule with this signature and a name. The rule observes if observe is true, and otherwise drops.
func (g *Signature) As(name string, observe bool) *policy.Rule {
	return &policy.Rule{Name: name, Named: true, Match: g.match, Then: policy.Drop, Observe: observe}
}

// Same reports whether two rules have the same tests. It is false if one is nil, because rules of older reports are not parsed.
func (g *Signature) Same(other *Signature) bool {
	return g != nil && other != nil && g.tests == other.tests
}

// Tests returns the text of the rule's tests. Equal rules have equal texts.
func (g *Signature) Tests() string { return g.tests }

// Wider reports whether the rule has fewer keys than the other rule.
func (g *Signature) Wider(other *Signature) bool {
	return len(g.match.Words()) < len(other.match.Words())
}
