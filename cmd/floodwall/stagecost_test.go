// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/model/cost"
)

// TestCompileCosts checks that compile prints the costs of a target's stages. The costs come from this host's cost model.
func TestCompileCosts(t *testing.T) {
	host, err := cost.ThisHost()
	if err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	m := &cost.Model{
		Host: host, Conntrack: 200, Route: 50,
		Reach: map[string]float64{"xdp": 30, "ingress": 150, "raw": 200, "filter": 300},
		Work:  map[string]cost.Work{"nftables/ingress": {}, "nftables/raw": {}, "nftables/filter": {}},
	}
	if err := m.Write(state); err != nil {
		t.Fatal(err)
	}
	policy := filepath.Join(state, "policy.yaml")
	if err := os.WriteFile(policy, []byte("devices: [fw0]\nrules: [{name: a, from: 192.0.2.1, then: drop}]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	root := newRoot(&cli.Env{Getenv: os.Getenv, UI: cli.UI{Stdout: &out, Stderr: &errs}})
	root.SetArgs([]string{"--state", state, "compile", "--target", "nftables", policy})
	if err := root.Execute(); err != nil || errs.Len() > 0 {
		t.Fatalf("%v %s", err, &errs)
	}
	const want = "# a packet that is dropped costs 150 ns at ingress, 200 ns at raw, 350 ns at filter, 550 behind conntrack\n"
	if !strings.HasPrefix(out.String(), want) {
		t.Errorf("it begins\n%.300s\nwant\n%s", out.String(), want)
	}
}
