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

// TestSchemaDefaults reads policies that leave a key out and policies that say its default: both mean the same.
func TestSchemaDefaults(t *testing.T) {
	rule, service := "{devices: [eth0], rules: [{then: drop, %s}]}", "{devices: [eth0], services: [{name: s, port: tcp/80, %s}]}"
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
	} {
		for _, name := range at(t, c.at) {
			value, ok := defaultOf(t, c.at, name)
			if !ok {
				continue
			}
			seen++
			without, with := meaning(t, fmt.Sprintf(c.policy, "")), meaning(t, fmt.Sprintf(c.policy, name+": "+value))
			if diff := cmp.Diff(without, with, cmpopts.IgnoreTypes(Pos{}), inAnyOrder, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
				t.Errorf("%s: %s is not the default (-left out +said):\n%s", c.at, value, diff)
			}
		}
	}
	if seen < 15 {
		t.Errorf("the schema says %d defaults", seen)
	}
}

// inAnyOrder compares lists of DNS types, whose order means nothing.
var inAnyOrder = cmpopts.SortSlices(func(a, b uint32) bool { return a < b })

// defaultOf is the default of a property as YAML, if the schema says one.
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

// meaning is a policy that is read without a mistake, less its notes. An empty placement is auto.
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
