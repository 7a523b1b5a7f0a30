// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/test/testutil"
)

// saboteur is a script that runs in place of a tool. It counts the calls that change the kernel, and fails at one of them, before or after the tool
// has done its work.
const saboteur = `#!/bin/sh
case "$0 $*" in *restore*|*"-f -"*)
	n=$(($(cat DIR/count) + 1))
	echo $n >DIR/count
	if [ $n = $(cat DIR/fail) ]; then
		[ $(cat DIR/when) = before ] || REAL "$@"
		echo "sabotage" >&2
		exit 1
	fi
esac
exec REAL "$@"
`

// sabotage puts a saboteur before each of the tools, and returns its directory.
func (b *bench) sabotage() string {
	b.Helper()
	dir := b.TempDir()
	bug := func(t *tool) {
		script := strings.NewReplacer("DIR", dir, "REAL", t.path).Replace(saboteur)
		t.path = filepath.Join(dir, t.name)
		b.must(os.WriteFile(t.path, []byte(script), 0o755))
	}
	switch g := b.generations.(type) {
	case nftGenerations:
		bug(&g.tool)
	case iptablesGenerations:
		bug(&g.ipset)
		for _, f := range g.families {
			bug(&f.restore)
		}
	}
	return dir
}

// TestFaults makes each single call of a tool fail. In the short form it makes every fifth call fail, from a random first one.
func TestFaults(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		b.must(b.load(t.Context(), 1, 0, 0))
		before := b.ruleset()
		dir := b.sabotage()
		set := func(name string, v any) {
			b.must(os.WriteFile(filepath.Join(dir, name), []byte(fmt.Sprint(v)), 0o644))
		}
		step, random := testutil.Scaled(5, 1), testutil.Random(t)
		for _, trial := range []time.Duration{0, time.Minute} {
			for _, when := range []string{"before", "after"} {
				reached := true
				for fail := 1 + random.IntN(step); reached; fail += step {
					set("count", 0)
					set("fail", fail)
					set("when", when)
					err := b.load(t.Context(), 2, 1, trial)
					text, _ := os.ReadFile(filepath.Join(dir, "count"))
					calls, _ := strconv.Atoi(strings.TrimSpace(string(text)))
					reached = calls >= fail
					set("fail", 0)
					b.failed(fmt.Sprintf("trial %v, call %d fails %s its work", trial, fail, when), err, reached, before, when)
				}
			}
		}
	})
}

// failed checks the kernel after the load of 2 over 1 has failed, and restores 1.
func (b *bench) failed(what string, err error, reached bool, before []string, when string) {
	b.Helper()
	var remains *RemainsError
	if reached != (err != nil) || err != nil && !strings.Contains(err.Error(), "sabotage") {
		b.Errorf("%s: error %v", what, err)
	}
	who := b.decides()
	_, state, stateErr := b.Trial(b.Context(), b.name(2))
	b.must(stateErr)
	switch {
	case err == nil, errors.As(err, &remains), when == "after" && state == Settled:
		if who != "even" {
			b.Errorf("%s: %s decides", what, who)
		}
	default:
		if who != "odd" {
			b.Errorf("%s: %s decides", what, who)
		}
		if diff := cmp.Diff(before, b.ruleset()); diff != "" {
			b.Errorf("%s: the kernel is not as before (-want +got):\n%s", what, diff)
		}
	}
	b.clean(before)
}

// fake creates a directory with a program that prints a text and ends with a status. It sets the path to only this directory.
func fake(t *testing.T, name, text string, status int) {
	t.Helper()
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\necho '%s'\nexit %d\n", text, status)
	if name != "" {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	dirs := adminDirs
	adminDirs = nil
	t.Cleanup(func() { adminDirs = dirs })
}

func TestFind(t *testing.T) {
	find := map[string]func() error{
		"nft":      func() error { _, err := FindNft(context.Background()); return err },
		"iptables": func() error { _, err := FindIptables(); return err },
	}
	for _, row := range []struct {
		target, name, says string
		status             int
		message, hint      string
	}{
		{"nft", "", "", 0, "the program nft is not installed", "apt install nftables"},
		{"nft", "nft", "nftables v0.9.3 (Topsy)", 0, "version 0.9.3, and 0.9.7 or later is needed", "newer nft"},
		{"nft", "nft", "nftables v0.9.7 (X)\n  json:\tyes", 0, "", ""},
		{"nft", "nft", "nftables v1.10.0 (X)", 0, "", ""},
		{"nft", "nft", "what", 0, `no version in "what"`, ""},
		{"nft", "nft", "", 3, "asking nft for its version: nft: exit status 3", ""},
		{"iptables", "", "", 0, "the program ipset is not installed", "apt install ipset"},
		{"iptables", "ipset", "", 0, "the program iptables-restore is not installed\nthe program iptables-save", ""},
	} {
		t.Run(row.target+" "+row.says+row.name, func(t *testing.T) {
			if row.target == "iptables" {
				testutil.RequireRoot(t) // privileges are checked first
			}
			fake(t, row.name, row.says, row.status)
			wantError(t, find[row.target](), row.message, row.hint)
		})
	}
}

// wantError checks the text and the hint of an error. An empty text means no error.
func wantError(t testing.TB, err error, message, hint string) {
	t.Helper()
	if message == "" {
		if err != nil {
			t.Errorf("error %v", err)
		}
		return
	}
	if err == nil || !strings.Contains(err.Error(), message) {
		t.Errorf("error %v\nwant  %s", err, message)
	}
	var h interface{ Hint() string }
	if hint != "" && (!errors.As(err, &h) || !strings.Contains(h.Hint(), hint)) {
		t.Errorf("error %v has not the hint %q", err, hint)
	}
}

// TestRefused loads scripts with mistakes. The error must name the place of the mistake, and the kernel must be unchanged.
func TestRefused(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		before := b.ruleset()
		for _, row := range b.wrong() {
			wantError(t, row.load(), row.message, row.hint)
			if diff := cmp.Diff(before, b.ruleset()); diff != "" {
				t.Errorf("%s: the kernel is not as before (-want +got):\n%s", row.message, diff)
			}
		}
		wantError(t, b.load(t.Context(), 2, 1, 0), "generation "+b.name(1)+" is absent", "")
		wantError(t, b.load(t.Context(), 2, 0, time.Second), "a trial of 1s is shorter than 2s", "")
	})
}

type wrongScript struct {
	load          func() error
	message, hint string
}

func (b *bench) wrong() (rows []wrongScript) {
	ctx := b.Context()
	row := func(message, hint string, load func() error) { rows = append(rows, wrongScript{load, message, hint}) }
	switch g := b.generations.(type) {
	case nftGenerations:
		table := func(message, hint, old, new string) {
			row(message, hint, func() error {
				t := g.table(1)
				t.Script = strings.Replace(t.Script, old, new, 1)
				return g.Load(ctx, t, "", 0)
			})
		}
		table(`nft: No symbol type information, in the line "fly away"`, "", "udp dport 3", "fly away\nudp dport 3")
		table(`nft: syntax error, unexpected newline, in the line "udp dport"`, "newer", "udp dport 3", "udp dport\nudp dport 3")
		table(`in the line "jump nowhere"`, "does not exist", "udp dport 3", "jump nowhere\nudp dport 3")
		table(`a statement about something else: "flush ruleset"`, "", "# A policy.", "flush ruleset")
		table(`something else: "table inet watch`, "", "# A policy.", "table inet watch { chain in { type filter hook input priority 5; } }")
		table(`something else: "table ip floodwall-1`, "", "# A policy.", "table ip floodwall-1 { }")
	case iptablesGenerations:
		rules := func(message, hint, old, new string) {
			row(message, hint, func() error {
				r := g.rules(1)
				r.V6 = strings.Replace(r.V6, old, new, 1)
				return g.Load(ctx, r, "", 0)
			})
		}
		rules(`IPv6: ip6tables-restore: Port "x" does not resolve to anything., in the line "-A FLOODWALL-1-more -p udp -m udp --dport x `,
			"", "--dport 3", "--dport x")
		rules(`floodwall-1-nope`, "", "floodwall-1-bans6", "floodwall-1-nope")
		rules("a rule in the chain INPUT, which is not its own", "", "-A FLOODWALL-1-input", "-A INPUT")
		rules("the chain OTHER, which is not its own", "", ":FLOODWALL-1-input", ":OTHER")
		row(`the line "flush", which is not about its own sets`, "", func() error {
			r := g.rules(1)
			r.IPSet += "flush\n"
			return g.Load(ctx, r, "", 0)
		})
		row(`line "add floodwall-1-listed 1.2.3.4.5"`, "", func() error {
			r := g.rules(1)
			r.IPSet += "add floodwall-1-listed 1.2.3.4.5\n"
			return g.Load(ctx, r, "", 0)
		})
		row(`in the line "-I NOWHERE 1 -i fw0 `, "", func() error {
			r := g.rules(1)
			r.Hooks[0].Chain = "NOWHERE"
			return g.Load(ctx, r, "", 0)
		})
	}
	return rows
}

// TestWithoutIPv6 simulates a kernel without IPv6. ip6tables must not be called.
func TestWithoutIPv6(t *testing.T) {
	on(t, []string{"iptables-legacy"}, func(t *testing.T, b *bench) {
		proof := ipv6Proof
		ipv6Proof = func() string { return "/proc/no-such-file" }
		defer func() { ipv6Proof = proof }()
		x, err := FindIptables()
		b.must(err)
		b.must(iptablesGenerations{x}.load(t.Context(), 1, 0, 0))
		if passed := b.sent(func() { b.send(1, 10) }); passed[1] != 10 {
			t.Errorf("%d packets passed, want the 10 of IPv6", passed[1])
		}
		if strings.Contains(shell(t, "ip6tables-legacy-save"), "FLOODWALL-1") {
			t.Error("there are chains for IPv6")
		}
	})
}

// TestToolStops runs a tool that does not end, while the caller's context ends.
func TestToolStops(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "slow")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nexec sleep 60\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := tool{name: "slow", path: path}.run(ctx, "")
	wantError(t, err, "slow: context deadline exceeded", "")
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 10*time.Second {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
}
