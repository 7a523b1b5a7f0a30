// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOrigins makes programs and a person ban the same addresses, on each target. No action of a program may change a ban by a person. If two
// programs ban an address, the ban that ends later must stay. Each ban must be counted once, even if the command made it while no daemon ran.
func TestOrigins(t *testing.T) {
	if !inside(t) {
		return
	}
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte(fail2banPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	h := startDaemon(t)
	for _, target := range []string{"xdp", "nftables", "iptables"} {
		mustFloodwall(t, "apply", policy, "--target", target)
		for _, step := range []struct{ do, prints, lists string }{ // lists is a pattern for the list of bans; "": the list is not read

			{"block 198.51.100.1 --for forever --why mine", "blocked 1 entry", ""},
			{"block 198.51.100.1 --for 10m --origin crowdsec --why scan", "blocked 0 entries", `100\.1 +bans +forever +manual +mine`},
			{"block 198.51.100.2 --for 1h --origin fail2ban --why sshd", "blocked 1 entry", ""},
			{"block 198.51.100.2 --for 10m --origin fail2ban --why sshd-ddos", "blocked 0 entries", ""},
			{"unblock 198.51.100.2 --origin fail2ban --why sshd-ddos", "unblocked 0 entries", `100\.2 +bans +(1h|59m\S*) +fail2ban +sshd\n`},
			{"block 198.51.100.2 --for 2h --origin suricata --why scan", "blocked 1 entry", ""},
			{"unblock --origin fail2ban", "unblocked 0 entries", `100\.2 +bans +(2h|1h59m\S*) +suricata +scan`},
			{"block 198.51.100.3 --origin crowdsec", "blocked 1 entry", `100\.3 +bans +(1h|59m\S*) +crowdsec`},
			{"block 198.51.100.3 --for forever", "blocked 1 entry", `100\.3 +bans +forever +manual`},
			{"block 198.51.100.4 --why fail2ban:", "blocked 1 entry", `100\.4 +bans +\S+ +manual +fail2ban:`},
			{"unblock --origin suricata --why scan", "unblocked 1 entry", `prefix`},
		} {
			args := strings.Fields(step.do)
			if out := mustFloodwall(t, args...); !strings.Contains(out, step.prints) {
				t.Errorf("%s: floodwall %s: %s", target, step.do, out)
			}
			if step.lists == "" {
				continue
			}
			if out := mustFloodwall(t, "blocked"); !matches(step.lists, out) {
				t.Errorf("%s: after %s the list has not %s:\n%s", target, step.do, step.lists, out)
			}
		}
		if out, err := floodwall("block", "198.51.100.64/26", "--origin", "fail2ban"); err == nil || !strings.Contains(out, "never banned") {
			t.Errorf("%s: a prefix that is never banned: %v %s", target, err, out)
		}
		if out, err := floodwall("block", "192.0.2.1", "--origin", "fail2ban"); err == nil || !strings.Contains(out, "an address of this host") {
			t.Errorf("%s: an own address: %v %s", target, err, out)
		}
		if out, err := floodwall("block", "198.51.100.5", "--origin", "fail2bam"); err == nil || !strings.Contains(out, "the origins are") {
			t.Errorf("%s: an unknown origin: %v %s", target, err, out)
		}
		scrape := h.must(200, readSocket, "/v1/metrics").body
		for _, want := range []string{`{origin="manual"} 2`, `{origin="fail2ban"} 1`, `{origin="crowdsec"} 1`, `{origin="suricata"} 0`} {
			if !strings.Contains(scrape, "floodwall_bans_total"+want+"\n") {
				t.Errorf("%s: metrics have no floodwall_bans_total%s:\n%s", target, want, grep(scrape, "bans_total"))
			}
		}
		mustFloodwall(t, "unload")
	}
}

func grep(text, word string) (found string) {
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			found += line
		}
	}
	return found
}

// failingTool is a script in place of a tool. It fails when its input contains a certain word. Otherwise it runs the real tool.
const failingTool = `#!/bin/sh
case $* in *-f*|*restore*|*-) ;; *) exec REAL "$@" ;; esac
in=$(mktemp) && cat >"$in"
if grep -q suricata "$in"; then rm "$in"; echo 'line 1: Error: no memory' >&2; exit 1; fi
REAL "$@" <"$in"; code=$?; rm "$in"; exit $code
`

// TestOwnerChangeFails makes the netfilter tool fail when a ban gets another owner. The previous owner must still ban the address.
func TestOwnerChangeFails(t *testing.T) {
	if !inside(t) {
		return
	}
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte(fail2banPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	s, dir, path := serve(t), t.TempDir(), os.Getenv("PATH")
	for _, tool := range []string{"nft", "ipset"} {
		real := must(exec.LookPath(tool))
		if err := os.WriteFile(filepath.Join(dir, tool), []byte(strings.ReplaceAll(failingTool, "REAL", real)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, target := range []string{"nftables", "iptables"} {
		mustFloodwall(t, "apply", policy, "--target", target)
		mustFloodwall(t, "block", "198.51.100.2", "--origin", "fail2ban", "--why", "sshd", "--for", "10m")
		t.Setenv("PATH", dir+":"+path)
		if out, err := floodwall("block", "198.51.100.2", "--origin", "suricata", "--for", "2h"); err == nil {
			t.Errorf("%s: the tool has not failed: %s", target, out)
		}
		t.Setenv("PATH", path)
		if out := mustFloodwall(t, "blocked"); !matches(`100\.2 +bans +(10m|9m\S*) +fail2ban +sshd\n`, out) {
			t.Errorf("%s: after a change that failed:\n%s", target, out)
		}
		s.banned(target, []string{"198.51.100.2"}, "198.51.100.2")
		mustFloodwall(t, "block", "198.51.100.2", "--origin", "suricata", "--why", "scan", "--for", "2h")
		if out := mustFloodwall(t, "blocked"); !matches(`100\.2 +bans +(2h|1h59m\S*) +suricata +scan\n`, out) {
			t.Errorf("%s: after the change:\n%s", target, out)
		}
		mustFloodwall(t, "unload")
	}
}
