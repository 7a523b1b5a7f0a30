// SPDX-License-Identifier: Apache-2.0

package schemas

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/policy/yamltree"
)

// TestSchemaAccepts checks that the schema accepts the good policies, which it validates as an editor does.
func TestSchemaAccepts(t *testing.T) {
	schema := compiled(t)
	files, err := filepath.Glob("../../policy/testdata/good/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no good policies: %v", err)
	}
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(instance(t, src)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestSchemaRefuses(t *testing.T) {
	schema := compiled(t)
	for _, src := range []string{
		"default: drop",
		"{devices: []}",
		"{devices: [eth0], default: reject}",
		"{devices: [eth0], version: 1}",
		"{devices: [eth0], checks: {lnad: on}}",
		"{devices: [eth0], sets: {a: {dynamic: true}}}",
		"{devices: [eth0], sets: {a: {file: x, dynamic: true, max: 1}}}",
		"{devices: [eth0], sets: {a: [www.example.com]}}",
		"{devices: [eth0], rules: [{proto: tcp}]}",
		"{devices: [eth0], rules: [{then: drop, src: 192.0.2.1}]}",
		"{devices: [eth0], rules: [{then: drop, port: 80/tcp}]}",
		"{devices: [eth0], rules: [{then: drop, port: 65536}]}",
		"{devices: [eth0], rules: [{then: drop, flags: SYN}]}",
		"{devices: [eth0], rules: [{then: drop, icmp: 8}]}",
		"{devices: [eth0], rules: [{then: drop, not: {then: drop}}]}",
		"{devices: [eth0], rules: [{then: slip}]}",
		"{devices: [eth0], rules: [{then: drop, over: {per: from}}]}",
		"{devices: [eth0], rules: [{then: drop, over: {rate: 1000}}]}",
		"{devices: [eth0], rules: [{then: drop, over: {rate: 1/s, per: 24}}]}",
		"{devices: [eth0], rules: [{then: drop, over: []}]}",
		"{devices: [eth0], rules: [{then: drop, over: {connections: 20}}]}",
		"{devices: [eth0], rules: [{then: drop, over: {connections: 20, per: from, burst: 3}}]}",
		"{devices: [eth0], rules: [{then: drop, over: [{rate: 1/s}, {connections: 20, per: from}]}]}",
		"{devices: [eth0], rules: [{then: drop, not: {over: {rate: 1/s}}}]}",
		"{devices: [eth0], rules: [{then: drop, payload: {nocase: true}}]}",
		"{devices: [eth0], rules: [{then: drop, payload: {contains: x, at: {bytes: x}}}]}",
		"{devices: [eth0], rules: [{then: drop, payload: {contains: \"|0g|\"}}]}",
		"{devices: [eth0], rules: [{then: drop, dns: ANY}]}",
		"{devices: [eth0], rules: [{then: drop, dns: {type: any}}]}",
		"{devices: [eth0], rules: [{then: drop, dns: {name: '*.example'}}]}",
		"{devices: [eth0], rules: [{then: drop, sample: 100}]}",
		"{devices: [eth0], rules: [{then: truncate, slip: 0}]}",
		"{devices: [eth0], sets: {a: {names: x, max: 1}}}",
		"{devices: [eth0], services: [{name: dns, port: 53, guard: {total: off}}]}",
		"{devices: [eth0], rules: [{then: drop, state: est}]}",
		"{devices: [eth0], rules: [{then: drop, state: []}]}",
		"{devices: [eth0], services: [{name: web}]}",
		"{devices: [eth0], services: [{name: web, port: 80, track: maybe}]}",
		"{devices: [eth0], services: [{name: web, port: 80, syn: auto}]}",
		"{devices: [eth0], services: [{name: web, port: 80, syn: {mode: on}}]}",
		"{devices: [eth0], services: [{name: web, port: 80, syn: {start: off}}]}",
		"{devices: [eth0], services: [{name: web, port: 80, syn: {wscale: 15}}]}",
		"{devices: [eth0], untracked: [tcp/80]}",
		"{devices: [eth0], untracked: []}",
		"{devices: [eth0], placement: input}",
		"{devices: [eth0], rules: [{then: drop, placement: [raw]}]}",
	} {
		if schema.Validate(instance(t, []byte(src))) == nil {
			t.Errorf("the schema accepts %s", src)
		}
	}
}

func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	if err := c.AddResource("policy.json", parsed(t, policy.Schema())); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("policy.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// instance returns src as the values that an editor validates, with YAML's implicit types.
func instance(t *testing.T, src []byte) any {
	t.Helper()
	text, err := yamltree.JSON(src)
	if err != nil {
		t.Fatalf("%v in %s", err, src)
	}
	return parsed(t, text)
}
