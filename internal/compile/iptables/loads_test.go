// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestIptablesLoads compiles the policies of all archives and random policies, and loads them with the real tools. The kernel must then have as many
// rules and sets as the input.
func TestIptablesLoads(t *testing.T) {
	for _, tool := range []string{"ipset", "iptables-legacy-restore", "iptables-nft-restore"} {
		testutil.RequireTool(t, tool)
	}
	if !testutil.Inside(t) {
		return
	}
	for _, file := range subject.Archives(t) {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		loads(t, subject.Lower(t, subject.Section(a, "policy.yaml")).Optimized())
	}
	if !loads(t, subject.Lower(t, exceptions(12))) {
		t.Error("a policy with as many exceptions as possible is refused")
	}
	r, _ := subject.Seeded(t)
	random, loaded := testutil.Scaled(24, 200), 0
	for range random {
		text, _, _ := subject.RandomPolicy(t, rand.New(rand.NewPCG(r.Uint64(), 0)), 1+r.IntN(12))
		if loads(t, subject.Lower(t, text).Optimized()) {
			loaded++
		}
	}
	if loaded < random/4 {
		t.Errorf("only %d of %d random policies can be written for iptables", loaded, random)
	}
}

// loads loads a policy with the iptables tools. It reports whether the policy can be expressed in iptables.
func loads(t *testing.T, s *subject.Subject) bool {
	x, err := subject.ToIptables(s.Program)
	if err != nil {
		return false
	}
	subject.Feed(t, s, x.IPSet, "ipset", "restore")
	for _, backend := range []string{"legacy", "nft"} {
		for family, text := range map[string]string{"iptables-": x.V4, "ip6tables-": x.V6} {
			subject.Feed(t, s, text, family+backend+"-restore", "--noflush")
			saved := subject.Feed(t, s, "", family+backend+"-save")
			if got, want := strings.Count(saved, "\n-A "), strings.Count(text, "-A "); got != want {
				t.Errorf("%s%s: %d rules, want %d:\n%s\n%s", family, backend, got, want, saved, text)
			}
			subject.Feed(t, s, emptied(saved), family+backend+"-restore")
		}
	}
	saved := subject.Feed(t, s, "", "ipset", "save")
	if got, want := strings.Count(saved, "\n"), savedLines(x.IPSet); got != want {
		t.Errorf("ipset: %d lines, want %d:\n%s\n%s", got, want, saved, x.IPSet)
	}
	subject.Feed(t, s, "", "ipset", "destroy")
	return true
}

// savedLines returns the number of lines that ipset lists after it has read an input. It lists one line for each port, even if the input has a range
// of ports in a single line.
func savedLines(restore string) (n int) {
	for line := range strings.Lines(restore) {
		n++
		words := strings.Fields(line)
		first, last, isRange := strings.Cut(words[2], "-")
		if words[0] == "add" && isRange {
			a, _ := strconv.Atoi(first)
			b, _ := strconv.Atoi(last)
			n += b - a
		}
	}
	return n
}

// emptied returns the restore input that removes all rules and chains from the saved tables.
func emptied(saved string) string {
	var b strings.Builder
	for line := range strings.Lines(saved) {
		if strings.HasPrefix(line, "*") || strings.HasPrefix(line, "COMMIT") || strings.HasPrefix(line, ":") && !strings.Contains(line, " - ") {
			b.WriteString(line)
		}
	}
	return b.String()
}
