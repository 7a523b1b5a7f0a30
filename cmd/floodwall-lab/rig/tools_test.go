// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"io"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestToolScripts(t *testing.T) {
	l := &List{Prefixes: []netip.Prefix{netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("2001:db9::1/128")}, V6: true}
	var ipset strings.Builder
	if err := ipsetScript(&ipset, l); err != nil {
		t.Fatal(err)
	}
	want := "create listed hash:net family inet6 maxelem 65536\nadd listed 2001:db8::/32\nadd listed 2001:db9::1\n"
	if diff := cmp.Diff(want, ipset.String()); diff != "" {
		t.Errorf("ipset (-want +got):\n%s", diff)
	}
	var nft strings.Builder
	if err := nftSetScript(&nft, l, NftRaw.Script(NftDrop(l)+"drop\n", nftSet)); err != nil {
		t.Fatal(err)
	}
	want = `table inet bench {
set listed {
type ipv6_addr
flags interval
elements = {2001:db8::/32,
2001:db9::1,
}
}
chain drops {
type filter hook prerouting priority raw; policy accept;
ip6 saddr @listed drop
drop
}
}
`
	if diff := cmp.Diff(want, nft.String()); diff != "" {
		t.Errorf("nft (-want +got):\n%s", diff)
	}
}

func TestTempFileRemovesWhatFails(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	if _, _, err := TempFile("x", func(io.Writer) error { return os.ErrInvalid }); err == nil {
		t.Error("no error")
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
