// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"testing"

	"github.com/floodwall/floodwall/test/subject"
)

// TestDNSKeys checks all forms of dns, and of dns under not.
func TestDNSKeys(t *testing.T) {
	t.Parallel()
	s := subject.Lower(t, `
rules:
  - {name: other, port: udp/53, not: {dns: query}, then: drop}
  - {name: types, port: udp/54, not: {dns: {type: [A, 28]}}, then: drop}
  - {name: names, port: udp/55, not: {dns: {name: [evil.example, a.b.example]}}, then: drop}
  - {name: is, port: udp/57, dns: {type: A, name: evil.example}, then: drop}
  - {name: any, port: udp/58, dns: query, then: drop}
`)
	s.Optimized().Agree(t, s.Cases(t, `
udp 8.8.8.8:5 > 1.1.1.1:53 dns=A,example.com             pass default
udp 8.8.8.8:5 > 1.1.1.1:53 dns=A,example.com,response    drop other
udp 8.8.8.8:5 > 1.1.1.1:53                               drop other
udp 8.8.8.8:5 > 1.1.1.1:54 dns=A,example.com             pass default
udp 8.8.8.8:5 > 1.1.1.1:54 dns=AAAA,example.com          pass default
udp 8.8.8.8:5 > 1.1.1.1:54 dns=TXT,example.com           drop types
udp 8.8.8.8:5 > 1.1.1.1:55 dns=A,example.com             drop names
udp 8.8.8.8:5 > 1.1.1.1:55 dns=A,x.evil.example          pass default
udp 8.8.8.8:5 > 1.1.1.1:55 dns=A,b.example               drop names
udp 8.8.8.8:5 > 1.1.1.1:55 dns=A,a.b.example             pass default
udp 8.8.8.8:5 > 1.1.1.1:57 dns=A,evil.example            drop is
udp 8.8.8.8:5 > 1.1.1.1:57 dns=TXT,evil.example          pass default
udp 8.8.8.8:5 > 1.1.1.1:57 dns=A,example                 pass default
udp 8.8.8.8:5 > 1.1.1.1:58 dns=A,example.com             drop any
udp 8.8.8.8:5 > 1.1.1.1:58 dns=A,example.com,response    pass default
udp 8.8.8.8:5 > 1.1.1.1:58                               pass default
`))
}
