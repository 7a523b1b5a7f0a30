// SPDX-License-Identifier: Apache-2.0

package policy

import (
	gocmp "cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestSchemaDefaults checks that a policy without a key means the same as a policy that sets the key to its default.
func TestSchemaDefaults(t *testing.T) {
	rule, service := "{devices: [eth0], rules: [{then: drop, %s}]}", "{devices: [eth0], services: [{name: s, port: tcp/80, %s}]}"
	daemon := "{devices: [eth0], sets: {bans: {dynamic: true, max: 9}}, daemon: {%s}}"
	upstream := "{devices: [eth0], upstream: {as: 64500, router_id: 192.0.2.1, announce: 192.0.2.0/24, peers: [{address: 192.0.2.254, as: 64501, %s}], %s}}"
	seen := 0
	for _, c := range []struct{ at, policy string }{
		{"properties", "{devices: [eth0], %s}"},
		{"$defs/checks/properties", "{devices: [eth0], checks: {land: on, %s}}"},
		{"$defs/payload/properties", "{devices: [eth0], rules: [{then: drop, payload: {contains: A, %s}}]}"},
		{"$defs/place/properties", "{devices: [eth0], rules: [{then: drop, payload: {at: {offset: 0, bytes: A, %s}}}]}"},
		{"$defs/rule/properties", rule},
		{"$defs/service/properties", service},
		{"$defs/guard/anyOf/1/properties", "{devices: [eth0], services: [{name: s, port: [udp/53, tcp/53], guard: {type: dns, %s}}]}"},
		{"$defs/syn/anyOf/2/properties", "{devices: [eth0], services: [{name: s, port: tcp/80, syn: {mss: 1400, %s}}]}"},
		{"$defs/udp/anyOf/2/properties", "{devices: [eth0], services: [{name: s, port: udp/99, udp: {start: 9000/s, %s}}]}"},
		{"$defs/set/anyOf/2/properties", "{devices: [eth0], sets: {s: {url: 'https://lists.example', %s}}}"},
		{"properties/detect/properties", "{devices: [eth0], detect: {baseline: learn, %s}}"},
		{"properties/detect/properties/auto/properties", "{devices: [eth0], detect: {baseline: learn, auto: {%s}}}"},
		{"properties/daemon/properties/webhook/properties", fmt.Sprintf(daemon, "webhook: {url: 'https://hooks.example', %s}")},
		{"properties/daemon/properties/crowdsec/properties", fmt.Sprintf(daemon, "crowdsec: {url: 'https://lapi.example', key_file: /k, %s}")},
		{"properties/daemon/properties/suricata/anyOf/1/properties", fmt.Sprintf(daemon, "suricata: {file: /eve.json, %s}")},
		{"properties/upstream/properties", fmt.Sprintf(upstream, "", "%s")},
		{"properties/upstream/properties/rtbh/properties", fmt.Sprintf(upstream, "", "rtbh: {%s}")},
		{"properties/upstream/properties/receive/properties", fmt.Sprintf(upstream, "", "receive: {%s}")},
		{"$defs/router/properties", fmt.Sprintf(upstream, "%s", "")},
	} {
		for _, name := range at(t, c.at) {
			value, ok := defaultOf(t, c.at, name)
			if !ok {
				continue
			}
			seen++
			without, with := meaning(t, fmt.Sprintf(c.policy, "")), meaning(t, fmt.Sprintf(c.policy, name+": "+value))
			if diff := cmp.Diff(without, with, cmpopts.IgnoreTypes(Pos{}), cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
				t.Errorf("%s: %s is not the default (-left out +said):\n%s", c.at, value, diff)
			}
		}
	}
	if seen < 40 {
		t.Errorf("the schema says %d defaults", seen)
	}
}

// defaultOf returns the default of a property in the schema, as YAML. ok reports whether the schema has a default.
func defaultOf(t *testing.T, path, name string) (value string, ok bool) {
	t.Helper()
	var key struct {
		Default json.RawMessage `json:"default"`
	}
	if err := json.Unmarshal(schemaAt(t, path+"/"+name), &key); err != nil {
		t.Fatal(err)
	}
	return string(key.Default), key.Default != nil
}

// meaning parses a policy and removes its notes. The policy must have no mistakes. An empty placement is replaced by auto.
func meaning(t *testing.T, text string) *Policy {
	t.Helper()
	p, err := Parse("policy.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	p.Notes = nil
	p.Placement = gocmp.Or(p.Placement, "auto")
	return p
}
