package datapath

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

// Conversations whose addresses differ in their last bytes only, at both ends, as those of neighbours with two servers do. The sum once had eight
// bits of the secrets then. TestRepliesOracle of the compiler compares the sum with those of the program.
func TestAddressesOfNeighbours(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 0))
	for range 100 {
		var f ReplyFlows
		for i := range f.secrets {
			f.secrets[i] = r.Uint64() | 1
		}
		of := map[uint64][2]netip.Addr{}
		for other := range byte(16) {
			for own := range byte(16) {
				pair := [2]netip.Addr{netip.AddrFrom16([16]byte{0x20, 1, 15: other}), netip.AddrFrom16([16]byte{0x20, 1, 14: 1, 15: own})}
				sum := f.pair(pair[0], pair[1])
				if same, there := of[sum]; there {
					t.Fatalf("%v and %v have the same sum", pair, same)
				}
				of[sum] = pair
			}
		}
	}
}
