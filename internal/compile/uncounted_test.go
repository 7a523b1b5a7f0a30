// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/policy"
)

// TestUncounted checks the messages about rules that count connections in traffic that conntrack does not see.
func TestUncounted(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"not tracked", "rules: [{name: few, port: tcp/80, over: {connections: 20, per: from}, then: drop}]\nservices: [{name: web, port: tcp/80, track: false}]",
			"policy.yaml:2:41: rule \"few\": conntrack counts connections, and `track: false` keeps service \"web\" from it\n" +
				"  hint: let the rule match no packet of the service (`port`, or `not: {port: …}`), or take `track: false` out of the service"},
		{"of all ports", "rules: [{name: few, over: {connections: 20, per: from}, then: drop}]\nservices: [{name: dns, port: udp/53, track: false}]", "keeps service \"dns\" from it"},
		{"protected", "rules: [{name: few, proto: tcp, over: {connections: 20, per: from}, then: drop}]\nservices: [{name: web, port: tcp/80, syn: {mode: host}}]",
			"`syn` begins those of service \"web\" without it"},
		{"behind", "rules: [{name: few, proto: tcp, over: {connections: 20, per: from}, then: drop}]\nservices: [{name: web, port: tcp/80, syn: {mode: router}}]",
			"`syn` begins those of service \"web\" without it"},
		{"another port", "rules: [{name: few, port: tcp/25, over: {connections: 20, per: from}, then: drop}]\n" +
			"services: [{name: web, port: tcp/80, syn: {mode: host}}, {name: dns, port: udp/53, track: false}]", ""},
		{"another protocol", "rules: [{name: few, port: udp/80, over: {connections: 20, per: from}, then: drop}]\nservices: [{name: web, port: 80, syn: {mode: router}}]", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, err := policy.Parse("policy.yaml", []byte("devices: [eth0]\n"+test.text+"\n"))
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = compile.Lower(p)
			if got := errorText(err); test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
