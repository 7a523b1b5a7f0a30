// SPDX-License-Identifier: Apache-2.0

package importer_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/importer"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestDifference removes or inverts each rule of imported policies, one at a time. The import must find that packets get another verdict, and name
// the rule of the files.
func TestDifference(t *testing.T) {
	const text = "*filter\n:INPUT DROP [0:0]\n:user - [0:0]\n-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n" +
		"-A INPUT -s 198.51.100.0/24 -j user\n-A INPUT -p tcp --dport 443 -j ACCEPT\n-A INPUT -p icmp --icmp-type 8 -j ACCEPT\n" +
		"-A INPUT -s 203.0.113.0/24 -p udp --dport 1000:1999 -m ttl --ttl-gt 5 -j ACCEPT\n" +
		"-A INPUT -p tcp --dport 25 -m hashlimit --hashlimit-upto 5/sec --hashlimit-mode srcip --hashlimit-name smtp -j ACCEPT\n" +
		"-A user -d 192.0.2.1 -p tcp --dport 22 -j ACCEPT\n-A user -j DROP\nCOMMIT\n"
	source := []importer.Source{{Name: "rules.v4", Data: []byte(text)}}
	o := importer.Options{Format: importer.Iptables, Devices: []string{"fw0"}}
	plain, err := importer.Import(t.Context(), source, o)
	if err != nil || plain.Differs != "" || len(plain.Lost) > 0 {
		t.Fatalf("%v: %s, %v", err, plain.Differs, plain.Lost)
	}
	count := strings.Count(plain.Policy, "then:")
	for i := range count {
		for name, change := range map[string]func(line string) string{"without": func(string) string { return "" }, "the other way round": turned} {
			r, err := importer.Import(t.Context(), source, o.Spoiled(func(policy string) string { return changed(policy, i, change) }))
			if err != nil {
				t.Fatal(err)
			}
			line := strings.Split(plain.Policy[strings.Index(plain.Policy, "rules:"):], "\n")[1+i]
			if r.Differs == "" || len(r.Lost) == 0 || !strings.Contains(r.Policy, "# IT DIFFERS FROM THE FILES: ") || !strings.HasPrefix(r.Lost[0].String(), "rules.v4:") {
				t.Errorf("%s %s: %q, %v", name, line, r.Differs, r.Lost)
			}
		}
	}
}

// turned returns a rule with the opposite verdict.
func turned(line string) string {
	if strings.Contains(line, "then: pass") {
		return strings.Replace(line, "then: pass", "then: drop", 1)
	}
	return strings.Replace(line, "then: drop", "then: pass", 1)
}

// changed returns a policy with its nth rule changed.
func changed(policy string, n int, change func(line string) string) string {
	lines := strings.SplitAfter(policy, "\n")
	for i, l := range lines {
		if !strings.Contains(l, "then:") {
			continue
		}
		if n--; n < 0 {
			lines[i] = change(l)
			break
		}
	}
	return strings.Join(lines, "")
}

// TestDifferenceOfArchives removes rules in the same way from the policies of TestGolden's archives. The import must find most missing rules. It
// cannot find rules that decide one packet in a hundred thousand, or that are followed by a rule with the same effect.
func TestDifferenceOfArchives(t *testing.T) {
	found, all := 0, 0
	for _, c := range cases(t) {
		sources, format := c.sources()
		if format == importer.Nft {
			testutil.RequireTool(t, "nft")
			testutil.RequireRoot(t)
		}
		o := importer.Options{Format: format, Devices: c.device, Router: c.router, ListFiles: true}
		plain := c.imports(t, sources, format)
		n := strings.Count(plain.Policy, "then:")
		for _, i := range slices.Compact([]int{0, n / 2, n - 1}) {
			r, err := importer.Import(context.Background(), sources, o.Spoiled(func(policy string) string { return changed(policy, i, turned) }))
			if err != nil {
				t.Fatal(err)
			}
			if all++; r.Differs != "" {
				found++
			} else {
				t.Logf("%s: rule %d", c.name, i)
			}
		}
	}
	if t.Logf("%d of %d", found, all); found < all*3/5 {
		t.Errorf("%d of %d changes are found", found, all)
	}
}
