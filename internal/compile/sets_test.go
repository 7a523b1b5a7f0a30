// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestDynamicSets checks sets that are filled after loading: alone, beside static ones, negated, on both sides, and with the host's own addresses.
func TestDynamicSets(t *testing.T) {
	t.Parallel()
	s := subject.Lower(t, `
checks: {profile: off, own-source: on}
sets:
  fixed: [8.8.4.0/24]
  bans: {dynamic: true, max: 100, timeout: 1h}
  friends: {dynamic: true, max: 10}
  empty: {dynamic: true, max: 1}
  whole: {dynamic: true, max: 2}
rules:
  - {name: whole, from: $whole, port: 9, then: drop}
  - {name: neither, not: {from: [$fixed, $bans]}, port: 10, then: drop}
  - {name: to-neither, not: {to: [$fixed, local, $friends]}, port: 11, then: drop}
  - {name: friends, from: $friends, then: pass}
  - {name: banned, from: [$fixed, $bans], then: drop}
  - {name: to-banned, to: $bans, not: {from: $empty}, then: drop}
  - {name: mine, to: local, port: 80, then: pass}
  - {name: other, not: {to: [local, $friends]}, family: ipv6, then: drop}
  - {name: either, from: [$empty, 7.7.7.7], to: [local, 6.6.6.6], then: drop}
`)
	s.Insert(t, "bans", "9.9.9.9/32 10.0.0.0/8 10.1.0.0/16 2001:db8:bad::/48 2001:db8::bad/128 0:0:1::7/128")
	s.Insert(t, "friends", "10.1.2.3/32 2001:db8:bad:1::/64")
	s.Insert(t, "whole", "0.0.0.0/0 0:0:1::/96") // 0:0:1::/96 is in the same block of lengths as the IPv6 form of IPv4 addresses
	s.Insert(t, "local", "192.0.2.1/32 2001:db8::1/128 fe80::1/128")
	frames := s.Cases(t, `
tcp 9.9.9.9:5 > 192.0.2.1:80          drop banned
tcp 8.8.4.9:5 > 192.0.2.1:80          drop banned
tcp 8.8.5.9:5 > 192.0.2.1:80          pass mine
tcp 8.8.5.9:5 > 192.0.2.1:81          pass default
tcp 10.1.2.3:5 > 1.1.1.1:80           pass friends
tcp 10.1.2.4:5 > 1.1.1.1:80           drop banned
tcp 10.2.2.4:5 > 1.1.1.1:80           drop banned
tcp 11.2.2.4:5 > 1.1.1.1:80           pass default
tcp 11.2.2.4:5 > 10.9.9.9:80          drop to-banned
udp [2001:db8:bad:2::]:5 > [2001:db8::1]:5  drop banned
udp [2001:db8:bad:1::9]:5 > [2001:db8::1]:5 pass friends
udp [2001:db8::bad]:5 > [2001:db8::1]:5     drop banned
udp [2001:db8::bae]:5 > [2001:db8::1]:5     pass default
udp [2001:db8::bae]:5 > [2001:db8::2]:5     drop other
udp [2001:db8::bae]:5 > [2001:db8:bad:1::1]:5  drop to-banned
udp [::ffff:9.9.9.9]:5 > [2001:db8::1]:5    pass default
udp 8.8.4.9:5 > 192.0.2.1:10          drop banned
udp 9.9.9.9:5 > 192.0.2.1:10          drop banned
udp 8.8.5.9:5 > 192.0.2.1:10          drop neither
udp 8.8.5.9:5 > 8.8.4.9:11            pass default
udp 8.8.5.9:5 > 192.0.2.1:11          pass default
udp 8.8.5.9:5 > 192.0.2.2:11          drop to-neither
udp 11.2.2.4:5 > 192.0.2.1:9          drop whole
udp [::ffff:11.2.2.4]:5 > [2001:db8::1]:9   pass default
udp 192.0.2.1:5 > 192.0.2.1:5         drop own-source
udp [fe80::1]:5 > [2001:db8::1]:5     drop own-source
udp 7.7.7.7:5 > 192.0.2.1:5           drop either
udp 7.7.7.7:5 > 6.6.6.6:5             drop either
udp 7.7.7.7:5 > 6.6.6.7:5             pass default
udp 7.7.7.8:5 > 6.6.6.6:5             pass default
`)
	s.Optimized().Agree(t, frames)
}

// TestDynamicExpiry checks that expired entries do not match and live entries do, before the expired entries are removed.
func TestDynamicExpiry(t *testing.T) {
	t.Parallel()
	s := subject.Lower(t, "sets: {bans: {dynamic: true, max: 9}}\nrules: [{name: banned, from: $bans, then: drop}]")
	for _, x := range s.Forms(t) {
		testutil.RequireRoot(t)
		p := s.Load(t, x)
		sets, release := subject.OpenDynamic(t, p)
		defer release()
		for prefix, expiry := range map[string]uint32{"9.9.9.1/32": 1, "9.9.9.2/32": 1 << 31, "9.9.9.3/32": 0,
			"9.9.8.0/24": 1, "9.9.0.0/16": 1, "9.8.0.0/16": 1 << 31, "2001:db8::/32": 1, "2001:db8::5/128": 1 << 31} {
			e := addrs.Entry{Prefix: netip.MustParsePrefix(prefix), Expiry: expiry}
			if err := sets.Sets[0].Insert(e, 0); err != nil {
				t.Fatal(err)
			}
		}
		for line, want := range map[string]uint8{
			"udp 9.9.9.1:5 > 1.1.1.1:5": 0, "udp 9.9.9.2:5 > 1.1.1.1:5": 1, "udp 9.9.9.3:5 > 1.1.1.1:5": 1,
			"udp 9.9.8.1:5 > 1.1.1.1:5": 0, "udp 9.8.8.1:5 > 1.1.1.1:5": 1, "udp 1.1.1.1:5 > 9.9.9.2:5": 0,
			"udp [2001:db8::4]:5 > [2606::]:5": 0, "udp [2001:db8::5]:5 > [2606::]:5": 1,
		} {
			got, err := p.Ask(subject.FramesOf(t, line)[0].Frame)
			if err != nil || got.Verdict != want {
				t.Errorf("%s: %s: verdict %d, %v, want %d", x.Form, line, got.Verdict, err, want)
			}
		}
	}
}

// TestDynamicExpirySecond looks up an entry within the second in which it expires, by the program's clock. The entry must be invalid from the start
// of that second.
func TestDynamicExpirySecond(t *testing.T) {
	t.Parallel()
	s := subject.Lower(t, "sets: {bans: {dynamic: true, max: 9}}\nrules: [{name: banned, from: $bans, then: drop}]")
	forms := s.Forms(t)
	testutil.RequireRoot(t)
	p := s.Load(t, forms[0])
	sets, release := subject.OpenDynamic(t, p)
	defer release()
	now := image.Monotonic()
	for now%time.Second < 100*time.Millisecond { // the coarse clock lags by some ticks
		now = image.Monotonic()
	}
	second := uint32(now / time.Second)
	for i, row := range []struct {
		expiry uint32
		want   ir.Verdict
	}{{second, ir.Pass}, {second - 1, ir.Pass}, {second + 1000, ir.Drop}} {
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{9, 9, 9, byte(i)}), 32)
		if err := sets.Sets[0].Insert(addrs.Entry{Prefix: prefix, Expiry: row.expiry}, 0); err != nil {
			t.Fatal(err)
		}
		got, err := p.Ask(subject.FramesOf(t, fmt.Sprintf("udp %s:5 > 1.1.1.1:5", prefix.Addr()))[0].Frame)
		if err != nil || ir.Verdict(got.Verdict) != row.want {
			t.Errorf("at %v an entry until second %d: verdict %d, %v, want %d", now, row.expiry, got.Verdict, err, row.want)
		}
	}
}

// TestFileSet reads a set from a file in the policy's directory.
func TestFileSet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	list := "# a list\n192.0.2.0/24 ; why\n2001:db8::/32\n198.51.100.4-198.51.100.5\n\n"
	if err := os.WriteFile(filepath.Join(dir, "listed.txt"), []byte(list), 0o644); err != nil {
		t.Fatal(err)
	}
	s := subject.LowerFile(t, filepath.Join(dir, "policy.yaml"), `
sets: {listed: {file: listed.txt, max: 3}}
rules: [{name: listed, from: $listed, then: drop}]
`)
	frames := s.Cases(t, `
udp 192.0.2.255:5 > 1.1.1.1:5         drop listed
udp 192.0.3.0:5 > 1.1.1.1:5           pass default
udp 198.51.100.5:5 > 1.1.1.1:5        drop listed
udp 198.51.100.6:5 > 1.1.1.1:5        pass default
udp [2001:db8::1]:5 > [2606::1]:5     drop listed
udp [2606::1]:5 > [2001:db8::1]:5     pass default
`)
	s.Optimized().Agree(t, frames)
	if len(s.Notes) != 1 || !strings.HasSuffix(s.Notes[0], `policy.yaml:2:8: set "listed" is 100% full: 3 of 3 entries; raise its max`) {
		t.Errorf("notes are %q", s.Notes)
	}
}

// TestOwnAddresses tests a host without addresses, and a host with more addresses than the program compares directly.
func TestOwnAddresses(t *testing.T) {
	t.Parallel()
	const policy = "default: drop\nrules: [{name: own, to: local, then: pass}]\n"
	lines := "udp 9.9.9.9:5 > 0.0.0.0:5  drop default\nudp [2606::9]:5 > [::]:5  drop default\n" +
		"udp 192.0.2.1:5 > 9.9.9.9:5  drop default\nudp [2606::9]:5 > [::c000:201]:5  drop default\n"
	none := subject.Lower(t, policy)
	none.Agree(t, none.Cases(t, lines))
	many := subject.Lower(t, policy)
	for i := range 2 * addrs.OwnIPv4 {
		many.Insert(t, "local", fmt.Sprintf("192.0.2.%d/32 2001:db8:%d::1/128", i, i))
		lines += fmt.Sprintf("udp 9.9.9.9:5 > 192.0.2.%d:5  pass own\nudp 9.9.9.9:5 > 192.0.3.%d:5  drop default\n", i, i) +
			fmt.Sprintf("udp [2606::9]:5 > [2001:db8:%d::1]:5  pass own\nudp [2606::9]:5 > [2001:db8:%d::2]:5  drop default\n", i, i)
	}
	many.Agree(t, many.Cases(t, lines))
}
