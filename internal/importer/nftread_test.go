// SPDX-License-Identifier: Apache-2.0

package importer_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/importer"
)

// TestNftTexts has nft texts with parts that nft would lose when it loads and lists them: an owner, flowtables, devices that this host does not have,
// objects that no rule uses, and large sets. The rules must be imported, or the error must name the reason.
func TestNftTexts(t *testing.T) {
	const rules = "\tchain in { type filter hook input priority 0; policy accept; ct state established accept; tcp dport 22 accept; drop; }\n}\n"
	tooLarge := "" // only root can load it: the kernel does not allow large buffers in a user namespace
	if os.Geteuid() != 0 {
		tooLarge = "f: nft cannot load it: netlink: Error: Could not process rule: Message too long"
	}
	accepted := []string{"{state: established, then: pass}", "{proto: tcp, port: 22, then: pass}", "{then: drop}"}
	var large strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&large, "10.%d.%d.7, ", i>>8, i&255)
	}
	for _, tt := range []struct {
		name, text string
		rules      []string
		lost, err  string
	}{
		{"owner", "table inet t {\n\tflags owner;\n" + rules, accepted, "", ""},
		{"owner and persist", "table inet t {\n\tflags owner, persist\n" + rules, accepted, "", ""},
		{"owner in a comment", "table inet t {\n\tcomment \"flags owner\" # flags owner\n" + rules, accepted, "", ""},
		{"dormant", "table inet t {\n\tflags dormant\n" + rules, nil, "", "f: table inet t is dormant: the kernel asks none of its chains, and no other table is in the file"},
		{"dormant beside another", "table ip other {\n\tflags dormant\n\tchain in { type filter hook input priority 0; policy drop; }\n}\ntable inet t {\n" + rules, accepted, "", ""},
		{"a ct timeout", "table inet t {\n\tct timeout slow {\n\t\tprotocol tcp\n\t\tl3proto ip\n\t\tpolicy = { established : 100, close : 4 }\n\t}\n" + rules, accepted, "", ""},
		{"a ct helper and a quota", "table inet t {\n\tct helper ftp {\n\t\ttype \"ftp\" protocol tcp\n\t}\n\tquota q { over 5 mbytes; }\n\tcounter c { packets 0 bytes 0; }\n" + rules, accepted, "", ""},
		{"ingress", "table netdev early {\n\tchain e { type filter hook ingress device \"fw0\" priority -500; policy accept; ip saddr 198.51.100.0/24 drop; }\n}\n",
			[]string{"{from: 198.51.100.0/24, then: drop}"}, "", ""},
		{"ingress of several devices", "table inet t {\n\tchain e { type filter hook ingress devices = { \"fw0\", lan-none } priority -500; policy drop; udp dport 53 accept; }\n}\n",
			[]string{"{not: {port: udp/53}, then: drop}"}, "", ""},
		{"a flowtable", "table inet t {\n\tflowtable ft {\n\t\thook ingress priority 0; devices = { \"lan1\", wan };\n\t\tcounter;\n\t}\n" +
			"\tchain in { type filter hook input priority 0; policy drop; meta l4proto { tcp, udp } flow add @ft\n\t\ttcp dport 22 accept\n\t}\n}\n",
			[]string{"{proto: tcp, port: 22, then: pass}", "{then: drop}"}, "forwards packets past the rules, and the policy does not", ""},
		{"typeof", "table inet t {\n\tset s { typeof ip saddr; flags interval; elements = { 198.51.100.0/24 } }\n\tset p { typeof tcp dport; elements = { 22, 443 } }\n" +
			"\tchain in { type filter hook input priority 0; policy accept; ip saddr @s drop; tcp dport @p drop; }\n}\n",
			[]string{"{from: $s, then: drop}", "{proto: tcp, port: [22, 443], then: drop}"}, "", ""},
		{"a large set", "table inet t {\n\tset s { type ipv4_addr; elements = { " + large.String() + "192.0.2.9 } }\n\tchain in { type filter hook input priority 0; ip saddr @s drop; }\n}\n",
			[]string{"{from: $s, then: drop}"}, "", tooLarge},
		{"what is removed again", "table inet t {\n\tchain x { }\n}\ndelete chain inet t x\ntable inet t {\n" + rules, accepted, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			loadable(t, importer.Nft)
			r, err := importer.Import(t.Context(), []importer.Source{{Name: "f", Data: []byte(tt.text)}}, importer.Options{Format: importer.Nft, Devices: []string{"fw0"}, ListFiles: true})
			if err != nil || tt.err != "" {
				if fmt.Sprint(err) != tt.err {
					t.Errorf("%v; want %q", err, tt.err)
				}
				return
			}
			var lost []string
			for _, l := range r.Lost {
				lost = append(lost, l.Why)
			}
			if diff := cmp.Diff(tt.rules, policyRules(r)); diff != "" || strings.Join(lost, "; ") != tt.lost {
				t.Errorf("lost %q, want %q; rules (-want +got):\n%s", lost, tt.lost, diff)
			}
		})
	}
}

// TestNftListings has JSON in the forms of different versions of nft: sets with typeof, a single element instead of a list of one, and
// output without the parts that 1.0.6 leaves out.
func TestNftListings(t *testing.T) {
	const chain = `{"table": {"family": "inet", "name": "t", "handle": 1}},
{"chain": {"family": "inet", "table": "t", "name": "c", "handle": 1, "type": "filter", "hook": "input", "prio": 0, "policy": "accept"}},`
	match := func(left, right string) string {
		return `{"rule": {"family": "inet", "table": "t", "chain": "c", "handle": 2, "expr": [{"match": {"op": "==", "left": ` + left + `, "right": ` + right + `}}, {"drop": null}]}}`
	}
	const saddr = `{"payload": {"protocol": "ip", "field": "saddr"}}`
	for _, tt := range []struct {
		name, objects string
		rule, err     string
	}{
		{"typeof and a flag as text", chain + `{"set": {"family": "inet", "table": "t", "name": "s", "type": {"typeof": ` + saddr + `}, "flags": "interval",
			"elem": [{"prefix": {"addr": "198.51.100.0", "len": 24}}]}}, ` + match(saddr, `"@s"`), "{from: $s, then: drop}", ""},
		{"typeof of IPv6", chain + `{"set": {"family": "inet", "table": "t", "name": "s", "type": {"typeof": {"payload": {"protocol": "ip6", "field": "daddr"}}},
			"elem": ["2001:db8::7"]}}, ` + match(`{"payload": {"protocol": "ip6", "field": "saddr"}}`, `"@s"`), "{from: $s, then: drop}", ""},
		{"typeof with a timeout", chain + `{"set": {"family": "inet", "table": "t", "name": "s", "type": {"typeof": ` + saddr + `}, "flags": "timeout", "timeout": 60}}, ` +
			match(saddr, `"@s"`), "{from: $s, then: drop}", ""},
		{"a flag of fib as text", chain + match(`{"fib": {"result": "type", "flags": "daddr"}}`, `"multicast"`), "{to: [224.0.0.0/4, ff00::/8], then: drop}", ""},
		{"a concatenation by typeof", chain + `{"set": {"family": "inet", "table": "t", "name": "s", "type": {"typeof": {"concat": [` + saddr + `, {"payload": {"protocol": "tcp", "field": "dport"}}]}},
			"elem": [{"concat": ["192.0.2.7", 80]}]}}, ` + match(`{"concat": [`+saddr+`, {"payload": {"protocol": "tcp", "field": "dport"}}]}`, `"@s"`), "{from: 192.0.2.7, proto: tcp, port: 80, then: drop}", ""},
		{"an owner", strings.Replace(chain, `"handle": 1}}`, `"handle": 1, "flags": "owner"}}`, 1) + match(saddr, `"192.0.2.7"`), "{from: 192.0.2.7, then: drop}", ""},
		{"a flag that nft 1.0.6 prints", strings.Replace(chain, `"handle": 1}}`, `"handle": 1, "flags": "t"}}`, 1) + match(saddr, `"192.0.2.7"`), "",
			`f: table inet t has the flag "t", whose meaning is not known`},
		{"no device", `{"table": {"family": "netdev", "name": "t", "handle": 1}}, {"chain": {"family": "netdev", "table": "t", "name": "c", "handle": 1, "type": "filter", "hook": "ingress", "prio": 0, "policy": "drop"}}`, "",
			"f: table netdev t, chain c, hook ingress: no device is in the file"},
		{"a device as text", `{"table": {"family": "netdev", "name": "t", "handle": 1}}, {"chain": {"family": "netdev", "table": "t", "name": "c", "handle": 1, "dev": "fw0", "type": "filter", "hook": "ingress", "prio": 0, "policy": "drop"}}`,
			"{then: drop}", ""},
		{"a rule without its chain", `{"table": {"family": "inet", "name": "t", "handle": 1}}, ` + match(saddr, `"192.0.2.7"`), "",
			"f: a rule is in chain c of table inet t, and no such chain is in the file"},
		{"other objects", chain + `{"ct timeout": {"family": "inet", "name": "slow", "table": "t", "policy": {"established": 100}}}, {"secmark": {"flags": 7}}, ` + match(saddr, `"192.0.2.7"`),
			"{from: 192.0.2.7, then: drop}", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := importer.Import(t.Context(), []importer.Source{{Name: "f", Data: []byte(`{"nftables": [` + tt.objects + `]}`)}},
				importer.Options{Format: importer.Nft, Devices: []string{"fw0"}})
			switch {
			case err != nil || tt.err != "":
				if fmt.Sprint(err) != tt.err {
					t.Errorf("%v; want %q", err, tt.err)
				}
			case !slices.Contains(policyRules(r), tt.rule) || len(r.Lost) > 0:
				t.Errorf("no %s in\n%s\nlost %v", tt.rule, r.Policy, r.Lost)
			}
		})
	}
}

// TestNftLosesRule uses an nft whose JSON lacks a rule. The import must fail, and must not make a policy of the other rules.
func TestNftLosesRule(t *testing.T) {
	loadable(t, importer.Nft)
	nft, err := exec.LookPath("nft")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "nft"), fmt.Appendf(nil, "#!/bin/sh\n%s \"$@\" | case $1 in -j) sed 's/, {\"rule\": [^]]*\\[{\"drop\": null}\\]}}//';; *) cat;; esac\n", nft))
	if err := errors.Join(os.Chmod(filepath.Join(dir, "nft"), 0o755), os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	text := "table inet t {\n\tchain c {\n\t\ttype filter hook input priority 0; policy accept;\n\t\ttcp dport 22 accept\n\t\tdrop\n\t}\n}\n"
	_, err = importer.Import(t.Context(), []importer.Source{{Name: "f", Data: []byte(text)}}, importer.Options{Format: importer.Nft, Devices: []string{"fw0"}})
	if want := "f: table inet t, chain c: nft lists 2 rules as text, and 1 as JSON"; fmt.Sprint(err) != want {
		t.Errorf("%v; want %q", err, want)
	}
}
