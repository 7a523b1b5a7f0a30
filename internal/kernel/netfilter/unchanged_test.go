// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// bell is a script that runs before a tool and writes a line for each call.
const bell = "#!/bin/sh\necho >>DIR/calls\nexec REAL \"$@\"\n"

// count replaces each tool by a script that logs the call and runs the tool. The returned function returns the number of calls since then.
func (b *bench) count() func() int {
	b.Helper()
	dir := b.TempDir()
	hang := func(t *tool) {
		script := strings.NewReplacer("DIR", dir, "REAL", t.path).Replace(bell)
		t.path = filepath.Join(dir, t.name)
		b.must(os.WriteFile(t.path, []byte(script), 0o755))
	}
	switch g := b.generations.(type) {
	case nftGenerations:
		hang(&g.tool)
	case iptablesGenerations:
		hang(&g.ipset)
		for _, f := range g.families {
			hang(&f.restore)
			hang(&f.save)
		}
	}
	return func() int {
		calls, _ := os.ReadFile(filepath.Join(dir, "calls"))
		return len(calls)
	}
}

// TestUnchangedRunsNothing checks that Floodwall starts no tool to find out that nothing has changed, even while packets are counted.
func TestUnchangedRunsNothing(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		b.must(b.load(t.Context(), 1, 0, 0))
		calls := b.count()
		b.states("loaded", "1 settled")
		_, err := b.Leftovers(t.Context(), b.prefix())
		b.must(err)
		before := calls()
		for range 5 {
			b.send(3, 2)
			b.states("with packets", "1 settled")
			_, err := b.Leftovers(t.Context(), b.prefix())
			b.must(err)
		}
		if n := calls() - before; n != 0 {
			t.Errorf("%d programs ran to read what had not changed", n)
		}
		counts, err := b.Counters(t.Context(), b.name(1))
		b.must(err)
		if got := counts["dropped"].Packets; got != 20 {
			t.Errorf("%d packets are counted as dropped, not 10 of each version of IP", got)
		}
	})
}

// TestChangedWhileRead checks that a listing is not cached if another program changed rules while it was read. It also checks that the listing is not
// used for another tool of the same name.
func TestChangedWhileRead(t *testing.T) {
	on(t, []string{"iptables-legacy"}, func(t *testing.T, b *bench) {
		b.must(b.load(t.Context(), 1, 0, 0))
		x := b.generations.(iptablesGenerations)
		f := x.families[0]
		real := f.save
		dir := t.TempDir()
		f.save.path = filepath.Join(dir, "iptables-save")
		b.must(os.WriteFile(f.save.path, []byte("#!/bin/sh\niptables-legacy -t filter -F; iptables-legacy -t raw -F\n"+real.path+" \"$@\"\n"), 0o755))
		if err := x.VerifyHooked(t.Context(), x.rules(1)); err == nil {
			t.Error("flushed while it was read, and verified")
		}
		f.save = real
		if err := x.VerifyHooked(t.Context(), x.rules(1)); err == nil {
			t.Error("flushed, and verified")
		}
		b.must(os.Remove(filepath.Join(dir, "iptables-save")))
		nft, err := exec.LookPath("iptables-nft-save")
		b.must(err)
		b.must(os.Symlink(nft, filepath.Join(dir, "iptables-save")))
		f.save.path = filepath.Join(dir, "iptables-save")
		if err := x.VerifyHooked(t.Context(), x.rules(1)); err == nil || !strings.Contains(err.Error(), "no chain FLOODWALL-1-raw of table raw for IPv4") {
			t.Errorf("read by the other kind of iptables: %v", err)
		}
	})
}

// TestOthersChanges checks that the next query sees a change by another program, however recent the last query was.
func TestOthersChanges(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		b.must(b.load(t.Context(), 1, 0, 0))
		b.states("loaded", "1 settled")
		if n, ok := b.generations.(nftGenerations); ok {
			b.must(n.Verify(t.Context(), n.table(1)))
			shell(t, "nft delete table inet floodwall-1")
			b.states("the table deleted", "1 absent")
			shell(t, "nft add table inet floodwall-1")
			b.states("a table of its name added", "1 settled")
			return
		}
		x := b.generations.(iptablesGenerations)
		kind := strings.TrimPrefix(filepath.Base(t.Name()), "iptables") // -nft or -legacy
		verified := func(when, want string) {
			t.Helper()
			err := x.VerifyHooked(t.Context(), x.rules(1))
			if got := errorText(err); !strings.Contains(got, want) || (want == "") != (got == "") {
				t.Errorf("%s: %q, not %q", when, got, want)
			}
		}
		verified("loaded", "")
		shell(t, "ip6tables"+kind+" -t filter -F INPUT")
		verified("hooks of IPv6 flushed", "no jump from chain INPUT of table filter to FLOODWALL-1-input for IPv6")
		b.states("hooks of IPv6 flushed", "1 settled")
		shell(t, "ip6tables"+kind+" -t raw -F PREROUTING")
		shell(t, "iptables"+kind+" -t raw -F PREROUTING")
		b.states("one hook left", "1 settled")
		shell(t, "iptables"+kind+" -t filter -F INPUT")
		b.states("all hooks flushed", "1 inert")
		shell(t, "iptables"+kind+" -t filter -I INPUT -i fw0 -j FLOODWALL-1-input")
		b.states("a hook put back", "1 settled")
		shell(t, "ipset create floodwall-7-bans4 hash:net")
		found, err := x.Leftovers(t.Context(), x.prefix())
		b.must(err)
		if got := strings.Join(found, " "); got != "FLOODWALL-1 FLOODWALL-7" {
			t.Errorf("with a set of another process there are %s", got)
		}
		shell(t, "ipset destroy floodwall-7-bans4")
	})
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
