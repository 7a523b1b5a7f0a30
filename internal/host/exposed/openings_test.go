// SPDX-License-Identifier: Apache-2.0

package exposed_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/host/exposed"
	"github.com/floodwall/floodwall/internal/os/sockets"
	"github.com/floodwall/floodwall/policy"
)

// TestOpenings checks for services and rules whether they open tcp/8080.
func TestOpenings(t *testing.T) {
	t.Parallel()
	for text, opens := range map[string]bool{
		"":                                    false,
		"services: [{name: a, port: tcp/80}]": false,
		"services: [{name: a, port: [tcp/80, tcp/8000-9000]}]":                         true,
		"services: [{name: a, port: tcp/8080, from: 192.0.2.0/24}]":                    true,
		"services: [{name: a, port: udp/8080}]":                                        false,
		"rules: [{proto: tcp, then: pass}]":                                            true,
		"rules: [{proto: gre, then: pass}]":                                            false,
		"rules: [{from: 192.0.2.0/24, then: pass}]":                                    true,
		"rules: [{port: tcp/8080, then: pass}]":                                        true,
		"rules: [{port: tcp/8080, then: pass, observe: true}]":                         false,
		"rules: [{port: tcp/8080, then: drop}]":                                        false,
		"rules: [{proto: tcp, state: established, then: pass}]":                        false,
		"rules: [{proto: tcp, state: [new, established], then: pass}]":                 true,
		"rules: [{proto: tcp, sport: 443, then: pass}]":                                false,
		"rules: [{icmp: echo-request, then: pass}]":                                    false,
		"rules: [{port: tcp/8080, then: drop}]\nservices: [{name: a, port: tcp/8080}]": true,
	} {
		p, err := policy.Parse("p.yaml", []byte("devices: [eth0]\ndefault: drop\n"+text+"\n"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		openings := exposed.Openings(p)
		if got := exposed.Passes(openings, sockets.Service{Proto: unix.IPPROTO_TCP, Port: 8080}); got != opens || openings == nil {
			t.Errorf("%s: opens tcp/8080: %v", text, got)
		}
	}
	if p, err := policy.Parse("p.yaml", []byte("devices: [eth0]\ndefault: pass\n")); err != nil || exposed.Openings(p) != nil {
		t.Errorf("with a default that passes there are openings: %v", err)
	}
}
