// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/floodwall/floodwall/test/testutil"
)

// drawSecrets returns random odd numbers, as a loader does.
func drawSecrets(r *rand.Rand) (k ReplySecrets) {
	for i := range k {
		k[i] = r.Uint64() | 1
	}
	return k
}

// TestAddressesOfNeighbours hashes flows whose addresses differ only in their last bytes, on both sides, such as those of adjacent clients with two
// servers. An earlier hash used only eight bits of the secrets for them. TestRepliesOracle of the compiler compares this hash with that of the
// program.
func TestAddressesOfNeighbours(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 0))
	for range 100 {
		secrets := drawSecrets(r)
		of := map[uint64][2]netip.Addr{}
		for other := range byte(16) {
			for own := range byte(16) {
				pair := [2]netip.Addr{netip.AddrFrom16([16]byte{0x20, 1, 15: other}), netip.AddrFrom16([16]byte{0x20, 1, 14: 1, 15: own})}
				sum := secrets.Pair(pair[0], pair[1])
				if same, there := of[sum]; there {
					t.Fatalf("%v and %v have the same sum", pair, same)
				}
				of[sum] = pair
			}
		}
	}
}

// ends has the two ends of a flow, as an attacker chooses them.
type ends struct {
	other, own [2]uint64 // the addresses in their byte order; IPv4 uses the first four bytes
	ports      [2]uint16
}

func (e *ends) index(k *ReplySecrets, v6 bool) (index, hash uint64) {
	addr := func(words [2]uint64) netip.Addr {
		var raw [16]byte
		binary.LittleEndian.PutUint64(raw[:], words[0])
		binary.LittleEndian.PutUint64(raw[8:], words[1])
		if v6 {
			return netip.AddrFrom16(raw)
		}
		return netip.AddrFrom4([4]byte(raw[:]))
	}
	pair, ports := k.Pair(addr(e.other), addr(e.own)), ReplyPorts(e.ports[0], e.ports[1])
	return k.Index(pair, ports), k.Hash(pair, ports, ReplyUDP)
}

// another returns the ends with some fields changed, as an attacker does who searches for a flow with the same hash. It changes high bits or single
// bytes, adds multiples of public factors, or changes two fields in opposite directions.
func (e ends) another(r *rand.Rand, v6 bool) ends {
	change := func() uint64 {
		switch r.IntN(7) {
		case 0:
			return 1 << 63
		case 1:
			return 1 << r.IntN(64)
		case 2:
			return uint64(r.IntN(256)) << (8 * r.IntN(8))
		case 3:
			return uint64(1+r.IntN(16)) * ReplyUDP
		case 4:
			return uint64(1+r.IntN(1<<16)) << 47
		case 5:
			return r.Uint64()
		}
		return uint64(1 + r.IntN(16))
	}
	d := change()
	if r.IntN(8) == 0 { // a change that would keep the hash if it had one public factor
		n := uint64(1 + r.IntN(3))
		e.other[0] += n * ReplyUDP & 0xffffffff
		e.own[0] -= n
		return e
	}
	for range 1 + r.IntN(3) {
		switch r.IntN(6) {
		case 0:
			e.other[0] += d
		case 1:
			e.own[0] -= d
		case 2:
			e.other[1] += d
		case 3:
			e.own[1] -= d
		case 4:
			e.ports[0] += uint16(d | d>>48)
		case 5:
			e.ports[1] ^= uint16(d | d>>48)
		}
		if r.IntN(2) == 0 {
			d = change()
		}
	}
	if !v6 { // only the first four bytes are used
		for _, a := range []*[2]uint64{&e.other, &e.own} {
			a[0] ^= a[0]>>32 ^ a[1]
			a[0], a[1] = a[0]&0xffffffff, 0
		}
	}
	return e
}

// TestChosenBuckets checks pairs of flows that an attacker chooses. The attacker knows everything except the secrets. Two such flows must not share a bucket
// more often than by chance, and must never share a tag. Each attempt uses new secrets.
func TestChosenBuckets(t *testing.T) {
	tries := testutil.Scaled(500_000, 10_000_000)
	for _, v6 := range []bool{false, true} {
		r := rand.New(rand.NewPCG(41, 0))
		same, tags, differ := 0, 0, 0
		for range tries {
			k := drawSecrets(r)
			a := ends{[2]uint64{r.Uint64(), r.Uint64()}, [2]uint64{r.Uint64(), r.Uint64()}, [2]uint16{uint16(r.Uint32()), 7000}}
			if !v6 {
				a.other, a.own = [2]uint64{a.other[0] & 0xffffffff}, [2]uint64{a.own[0] & 0xffffffff}
			}
			b := a.another(r, v6)
			if a == b {
				continue
			}
			differ++
			index, hash := a.index(&k, v6)
			number, tag := b.index(&k, v6)
			if index == number {
				same++
			}
			if hash>>ReplyTagShift == tag>>ReplyTagShift {
				tags++
			}
		}
		chance := float64(differ) / ReplyBuckets
		t.Logf("IPv6 %t: of %d pairs that differ %d share a bucket, by chance %.1f; %d have one tag", v6, differ, same, chance, tags)
		if float64(same) > chance+5*math.Sqrt(chance) || tags > 0 {
			t.Errorf("IPv6 %t: %d pairs share a bucket, by chance %.1f do; %d have one tag", v6, same, chance, tags)
		}
	}
}

// TestPeersOfOnePort checks that the buckets have space for many peers whose addresses have the same last words and whose ports are the same, as on
// the hub of a VPN.
func TestPeersOfOnePort(t *testing.T) {
	r := rand.New(rand.NewPCG(43, 0))
	for range 200 {
		k := drawSecrets(r)
		in := map[uint64]int{}
		for peer := range byte(200) {
			other := netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, peer, 15: 1})
			in[k.Index(k.Pair(other, netip.MustParseAddr("2001:db8:ffff::1")), ReplyPorts(51820, 51820))]++
		}
		for bucket, n := range in {
			if n > ReplySlots {
				t.Fatalf("bucket %d has %d of 200 peers", bucket, n)
			}
		}
	}
}
