// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/floodwall/floodwall/internal/bgp/flowspec"
	"github.com/floodwall/floodwall/test/testutil"
)

// flowOf returns a random flow specification that Floodwall accepts, and its NLRI. It has few prefixes and values, so that many flow specifications
// differ in one component.
func flowOf(r *rand.Rand, ipv6 bool) (flowspec.Flow, []byte) {
	for {
		body := drawn(r, ipv6)
		nlri := append([]byte{byte(len(body))}, body...)
		if f, rest, err := flowspec.Decode(nlri, ipv6); len(body) > 0 && err == nil && len(rest) == 0 {
			return f, nlri
		}
	}
}

// drawn returns random components (RFC 8955, section 4.2.2). Floodwall must refuse some of them.
func drawn(r *rand.Rand, ipv6 bool) (b []byte) {
	for kind := flowspec.Destination; kind <= flowspec.Fragment; kind++ {
		if r.IntN(4) > 0 && (kind != flowspec.Destination || r.IntN(3) == 0) {
			continue
		}
		b = append(b, byte(kind))
		if kind == flowspec.Destination || kind == flowspec.Source {
			bits := []int{0, 22, 24, 25, 32}[r.IntN(5)]
			b = append(b, byte(bits))
			if ipv6 {
				b = append(b, 0) // offset
			}
			address := []byte{192, 0, 4 * byte(r.IntN(2)), 0}
			if bits == 25 {
				address[3] = 0x80 * byte(r.IntN(2))
			}
			b = append(b, address[:(bits+7)/8]...)
			continue
		}
		values := 1 + r.IntN(3)
		for i := range values {
			op := byte(r.IntN(8)) // less, greater, equal
			if kind == flowspec.TCPFlags || kind == flowspec.Fragment {
				op &= 3 // not, match
			}
			if i > 0 {
				op |= 0x40 * byte(r.IntN(2)) // and
			}
			if i == values-1 {
				op |= 0x80 // the last one
			}
			b = append(b, op, []byte{0, 1, 2, 4, 6, 17, 40, 53, 80, 0xff}[r.IntN(10)])
		}
	}
	return b
}

// TestFlowsThroughGoBGP parses and encodes random flow specifications with GoBGP. The flow specifications and the names of their rules must stay the
// same.
func TestFlowsThroughGoBGP(t *testing.T) {
	t.Parallel()
	r := testutil.Random(t)
	for range testutil.Scaled(500, 50_000) {
		ipv6 := r.IntN(2) == 0
		f, nlri := flowOf(r, ipv6)
		again := throughGoBGP(t, nlri, ipv6)
		if !bytes.Equal(nlri, again) {
			t.Fatalf("%v: GoBGP makes %x of %x", f, again, nlri)
		}
		back, rest, err := flowspec.Decode(again, ipv6)
		if err != nil || len(rest) > 0 || flowspec.Compare(f, back) != 0 || f.Name() != back.Name() || f.String() != back.String() {
			t.Fatalf("%v: read again it is %v, %v", f, back, err)
		}
	}
}

// throughGoBGP parses an NLRI with GoBGP and encodes it again.
func throughGoBGP(t *testing.T, nlri []byte, ipv6 bool) []byte {
	t.Helper()
	family := map[bool]bgp.Family{false: bgp.RF_FS_IPv4_UC, true: bgp.RF_FS_IPv6_UC}[ipv6]
	n, err := bgp.NLRIFromSlice(family, nlri)
	if err != nil {
		t.Fatalf("GoBGP does not read %x: %v", nlri, err)
	}
	again, err := n.Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// TestOrderOfGoBGP compares the order of random flow specifications with GoBGP's. It omits IPv6 prefixes, because GoBGP 4.8 compares wrong bits of
// some prefixes that are shorter than 64 bits.
func TestOrderOfGoBGP(t *testing.T) {
	t.Parallel()
	r := testutil.Random(t)
	read := func(nlri []byte) *bgp.FlowSpecNLRI {
		n, err := bgp.NLRIFromSlice(bgp.RF_FS_IPv4_UC, nlri)
		if err != nil {
			t.Fatal(err)
		}
		return n.(*bgp.FlowSpecNLRI)
	}
	for range testutil.Scaled(1000, 100_000) {
		a, bytesA := flowOf(r, false)
		b, bytesB := flowOf(r, false)
		theirs, err := bgp.CompareFlowSpecNLRI(read(bytesA), read(bytesB))
		if err != nil || flowspec.Compare(a, b) != -theirs {
			t.Fatalf("%v and %v: %d, GoBGP says %d, %v", a, b, flowspec.Compare(a, b), theirs, err)
		}
	}
}
