// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestIPChecksum tests IPv4 headers with random words and with words that cause carries. Their checksum is either right or slightly wrong. 0 and
// 65535 are the same number in a checksum (RFC 1624).
func TestIPChecksum(t *testing.T) {
	t.Parallel()
	const ip, identification, checksum, addresses = 14, 14 + 4, 14 + 10, 14 + 12
	r, _ := subject.Seeded(t)
	var frames []subject.Probe
	for range testutil.Scaled(300, 100_000) {
		frame := subject.FramesOf(t, "udp 9.9.9.9:4000 > 10.0.0.2:53")[0].Frame
		for _, at := range []int{identification, addresses, addresses + 2, addresses + 4, addresses + 6} {
			word := []uint16{0, 1, 0xfffe, 0xffff, uint16(r.Uint32())}[r.IntN(5)]
			binary.BigEndian.PutUint16(frame[at:], word)
		}
		right := headerChecksum(frame[ip : ip+20])
		for _, c := range []uint16{right, right ^ 0xffff, right + 1, right - 1, 0, 0xffff, right ^ 1<<r.IntN(16)} {
			f := append([]byte(nil), frame...)
			binary.BigEndian.PutUint16(f[checksum:], c)
			frames = append(frames, subject.Probe{Name: fmt.Sprintf("%x", f), Frame: f})
		}
	}
	subject.Lower(t, "checks: {profile: off, ip-checksum: on}").AgreeOnce(t, frames)
}

// headerChecksum returns the checksum of an IPv4 header (RFC 1071). It ignores the value of the checksum field.
func headerChecksum(header []byte) uint16 {
	sum := uint32(0)
	for at := 0; at < len(header); at += 2 {
		if at != 10 {
			sum += uint32(binary.BigEndian.Uint16(header[at:]))
		}
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
