// SPDX-License-Identifier: Apache-2.0

package geo_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/sources/geo"
	"github.com/floodwall/floodwall/test/testutil"
)

func TestRead(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a.mmdb")
	err := testutil.Write(file,
		testutil.Network{Prefix: "1.1.0.0/16", Country: "XX", ASN: 64500}, testutil.Network{Prefix: "1.2.0.0/16", Country: "YY", ASN: 64501},
		testutil.Network{Prefix: "2a00:1::/32", Country: "XX", ASN: 64501}, testutil.Network{Prefix: "1.1.128.0/24", Country: "ZZ", ASN: 64502})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		wanted       geo.Wanted
		want, errors string
	}{
		{geo.Wanted{Countries: []string{"YY"}}, "1.2.0.0/16", ""},
		{geo.Wanted{Countries: []string{"XX", "ZZ"}}, "1.1.0.0/16 2a00:1::/32", ""},
		{geo.Wanted{ASNs: []uint32{64501}}, "1.2.0.0/16 2a00:1::/32", ""},
		{geo.Wanted{Countries: []string{"XX", "QQ"}}, "", "it has no network of QQ"},
		{geo.Wanted{ASNs: []uint32{1}}, "", "it has no network of AS1"},
	} {
		set, n, err := geo.Read(file, c.wanted)
		if c.errors != "" {
			if err == nil || !strings.Contains(err.Error(), c.errors) {
				t.Errorf("%+v: %v, not an error that says %q", c.wanted, err, c.errors)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for p := range set.Prefixes() {
			got = append(got, p.String())
		}
		if text := strings.Join(got, " "); text != c.want || n == 0 {
			t.Errorf("%+v: %s (%d networks), not %s", c.wanted, text, n, c.want)
		}
	}
}

// TestBroken checks that truncated databases and files of another kind are rejected.
func TestBroken(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a.mmdb")
	if err := testutil.Write(file, testutil.Network{Prefix: "1.1.0.0/16", Country: "XX"}); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, content := range [][]byte{{}, []byte("<html>"), whole[:len(whole)/2], append([]byte{0xff, 0xff, 0xff}, whole[3:]...)} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := geo.Read(file, geo.Wanted{Countries: []string{"XX"}}); err == nil || !strings.Contains(err.Error(), "mmdb") {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// TestFinder looks up addresses, also after the file has changed. A file that is not a database must be left out.
func TestFinder(t *testing.T) {
	dir := t.TempDir()
	file, bad := filepath.Join(dir, "a.mmdb"), filepath.Join(dir, "bad.mmdb")
	if err := errors.Join(
		testutil.Write(file, testutil.Network{Prefix: "198.51.100.0/24", Country: "nl", ASN: 64500}, testutil.Network{Prefix: "2001:db8::/32", ASN: 64501}),
		os.WriteFile(bad, []byte("<html>"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	var f geo.Finder
	for address, want := range map[string]string{"198.51.100.7": "NL AS64500", "2001:db8::1": " AS64501", "192.0.2.1": " "} {
		country, asn := f.Open([]string{bad, file, filepath.Join(dir, "none.mmdb")}).Find(netip.MustParseAddr(address))
		if got := country + " " + asn; got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
	if err := testutil.Write(file, testutil.Network{Prefix: "198.51.100.0/24", Country: "FR"}, testutil.Network{Prefix: "203.0.113.0/24", Country: "DE"}); err != nil {
		t.Fatal(err)
	}
	if country, _ := f.Open([]string{file}).Find(netip.MustParseAddr("198.51.100.7")); country != "FR" {
		t.Errorf("after a change: %q", country)
	}
	if list := f.Open(nil); list != nil {
		t.Errorf("none asked for: %v", list)
	}
}
