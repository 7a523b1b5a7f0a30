// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"testing"

	"github.com/floodwall/floodwall/internal/model/addrs"
)

// FuzzRead parses arbitrary bodies. It must not panic, and no set may contain an address that is not routed on the Internet.
func FuzzRead(f *testing.F) {
	for _, body := range []string{"1.2.3.4\n", "1.1.1.0,1.1.1.9\n", `{"cidr":"1.1.1.0/24"}`, "\"1.1.1.1\";\"1.1.1.7\"\n", "0.0.0.0/0\n9.9.9.9-9.9.9.1\n",
		"2001:db8::/32,x\n::/0\n", "{\"type\":\"metadata\"}\n", "<html>", "1.1.1.1 - 255.255.255.255", "::ffff:1.2.3.4/100"} {
		f.Add([]byte(body), "")
		f.Add([]byte(body), string(CSV))
		f.Add([]byte(body), string(NDJSON))
	}
	f.Fuzz(func(t *testing.T, body []byte, format string) {
		s, _, bad, err := read(body, Format(format), 1000)
		if err != nil {
			return
		}
		clean := s.done()
		for p := range clean.Set.Prefixes() {
			if notRouted(p.Addr()) || p.Bits() < addrs.Shortest4 {
				t.Errorf("%s is left (%d bad lines)", p, bad)
			}
		}
	})
}
