// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"slices"
	"testing"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
)

// TestShares counts frames for which the deciding code is known. general() gets searches for texts, fragments, and tests of a list together with a
// text. A protection gets the SYNs of its service.
func TestShares(t *testing.T) {
	const text = "devices: [eth0]\ndefault: drop\nreplies: drop\nchecks: off\nrules:\n" +
		"- {name: listed, from: 10.0.0.0/8, then: drop}\n- {name: text, port: udp/53, payload: {contains: \"abc\"}, then: drop}\n- {name: web, port: tcp/443, then: pass}\n" +
		"services: [{name: shop, port: tcp/80, syn: {when: always, mode: router}}]\n"
	proof, err := Compile(subject.Lower(t, text).Program, false)
	if err != nil {
		t.Fatal(err)
	}
	shares := proof.Shares()
	for frame, times := range map[string]int{
		"tcp 192.0.2.1:999 > 198.51.100.1:443 S":      3,
		"udp 192.0.2.1:999 > 198.51.100.1:54":         1,
		"udp 192.0.2.1:999 > 198.51.100.1:53":         4, // to general()
		"udp 10.1.2.3:999 > 198.51.100.1:53":          2, // the list decides first
		"tcp 192.0.2.1:999 > 198.51.100.1:80 S":       5, // to the protection
		"tcp [2001:db8::1]:999 > [2001:db8::2]:443 S": 1,
	} {
		for range times {
			if err := shares.Add(frameOf(t, frame)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, other := range [][]byte{nil, make([]byte, 14), make([]byte, 60)} {
		if err := shares.Add(other); err != nil {
			t.Fatal(err)
		}
	}
	want := []Share{{"IPv4 udp", 7, 3, 0}, {"IPv4 tcp", 8, 3, 5}, {"IPv6 tcp", 1, 1, 0}, {"all other frames", 3, 0, 0}}
	if got := shares.List(); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// frameOf returns a frame of a packet in the notation of explain.
func frameOf(t *testing.T, text string) []byte {
	t.Helper()
	spec, err := packet.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return spec.Frame()
}
