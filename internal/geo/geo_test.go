package geo_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/geo"
	"github.com/floodwall/floodwall/internal/geo/geotest"
)

func TestRead(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a.mmdb")
	err := geotest.Write(file,
		geotest.Network{Prefix: "1.1.0.0/16", Country: "XX", ASN: 64500}, geotest.Network{Prefix: "1.2.0.0/16", Country: "YY", ASN: 64501},
		geotest.Network{Prefix: "2a00:1::/32", Country: "XX", ASN: 64501}, geotest.Network{Prefix: "1.1.128.0/24", Country: "ZZ", ASN: 64502})
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

// A database that is cut short, or that is something else, is refused.
func TestBroken(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a.mmdb")
	if err := geotest.Write(file, geotest.Network{Prefix: "1.1.0.0/16", Country: "XX"}); err != nil {
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
