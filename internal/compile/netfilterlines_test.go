// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/test/subject"
)

// chainLines returns the lines of each chain of a script, without comments.
func chainLines(target plan.Target, script string) map[string][]string {
	chains, name := map[string][]string{}, ""
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		if target == plan.TargetIptables {
			if rest, ok := strings.CutPrefix(line, "-A "); ok {
				name, line, _ = strings.Cut(rest, " ")
				chains[name] = append(chains[name], line)
			}
			continue
		}
		words := strings.Fields(line)
		switch {
		case len(words) == 3 && words[0] == "chain":
			name = words[1]
		case line == "}":
			name = ""
		case name != "" && line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "type "):
			chains[name] = append(chains[name], line)
		}
	}
	return chains
}

// leadsUDP matches the lines that lead a certain packet to another chain: an unfragmented UDP packet over IPv4 without options.
var leadsUDP = []*regexp.Regexp{
	regexp.MustCompile(`^meta l4proto udp jump (\S+)$`),
	regexp.MustCompile(`^meta l4proto vmap \{.*\budp : jump ([^ ,]+)`),
	regexp.MustCompile(`^-p udp (?:! -f )?(?:-m udp --dport 53 )?(?:-m u32 --u32 "0>>24&0xF=5" )?-j (FLOODWALL-\S+)$`),
}

// passed returns the number of lines that such a packet passes, from the start of a chain to the first line that contains end. found reports whether
// there is such a line.
func passed(chains map[string][]string, chain, end string) (lines int, found bool) {
	for _, line := range chains[chain] {
		lines++
		if strings.Contains(line, end) {
			return lines, true
		}
		for _, leads := range leadsUDP {
			if to := leads.FindStringSubmatch(line); to != nil {
				more, found := passed(chains, to[1], end)
				if lines += more; found {
					return lines, true
				}
			}
		}
	}
	return lines, false
}

// TestNetfilterLines checks how many generated rules a UDP packet passes before a limit is tested, and before the last of 64 texts is searched for.
// With CPU mitigations, each line costs some 30 to 60 ns in any form of netfilter.
func TestNetfilterLines(t *testing.T) {
	texts := make([]string, 64)
	for i := range texts {
		texts[i] = fmt.Sprintf("%q", fmt.Sprintf("text%02d", i))
	}
	limit := "default: drop\nrules: [{name: limit, proto: udp, over: {rate: 1000/s, per: from/16, burst: 100}, then: drop}]\n"
	text := "default: drop\nrules: [{name: text, proto: udp, port: 53, payload: {contains: [" + strings.Join(texts, ", ") + "]}, then: drop}]\n"
	for _, c := range []struct {
		name, policy, end string
		target            plan.Target
		chain             string
		lines             int
	}{
		{"nftables, limit", "checks: standard\n" + limit, "update @rate-limit-v4", plan.TargetNftables, "ingress", 15},
		{"nftables, limit, unchecked", "checks: off\n" + limit, "update @rate-limit-v4", plan.TargetNftables, "ingress", 4},
		{"iptables, limit", "checks: standard\n" + limit, "-m hashlimit", plan.TargetIptables, "FLOODWALL-RAW", 8},
		{"iptables, limit, unchecked", "checks: off\n" + limit, "-m hashlimit", plan.TargetIptables, "FLOODWALL-RAW", 2},
		{"iptables, texts", text, "|746578743633|", plan.TargetIptables, "FLOODWALL-RAW", 66},
	} {
		script, err := subject.NetfilterTexts[c.target](subject.Lower(t, c.policy).Optimized().Program)
		if err != nil {
			t.Fatal(err)
		}
		if c.target == plan.TargetIptables {
			_, script, _ = strings.Cut(script, "# for: iptables-restore")
			script, _, _ = strings.Cut(script, "# for: ip6tables-restore")
		}
		lines, found := passed(chainLines(c.target, script), c.chain, c.end)
		if !found || lines != c.lines {
			t.Errorf("%s: %d lines to %q, found: %v; want %d", c.name, lines, c.end, found, c.lines)
		}
		if n := strings.Count(script, `"0>>24&0xF=5"`); c.end[0] == '|' && n != 1 {
			t.Errorf("%s: the place of the text is asked for in %d lines, want 1", c.name, n)
		}
	}
}
