// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

// seeded returns a source of random numbers. A failing test prints its seed. FLOODWALL_SEED repeats the test with that seed.
func seeded(t testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("FLOODWALL_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 0, 64); err != nil {
			t.Fatalf("FLOODWALL_SEED: %v", err)
		}
	}
	t.Logf("FLOODWALL_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func mustParse(t testing.TB, line string) Spec {
	t.Helper()
	s, err := Parse(line)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return s
}

func samePacket(a, b Packet) bool { return reflect.DeepEqual(a, b) }

// failures lists the names of the checks of s.
func failures(s CheckSet) string {
	var names []string
	for c := range NumChecks {
		if s.Has(c) {
			names = append(names, c.String())
		}
	}
	return strings.Join(names, " ")
}

// show returns a value in the notation of the tests.
func show(f Field, v uint32) string {
	switch {
	case (f == DPort || f == SPort) && v == PortNone, f == ICMP && v == ICMPNone, f == Flags && v == FlagsNone,
		f == VLAN && v == VLANNone:
		return "none"
	case (f == DPort || f == SPort) && v >= PortUDP:
		return fmt.Sprintf("udp/%d", v-PortUDP)
	case f == Flags:
		return formatFlags(uint8(v))
	case f == Family:
		return [...]string{FamilyIPv4: "ipv4", FamilyIPv6: "ipv6"}[v]
	case f == Fragment:
		return [...]string{FragmentNone: "none", FragmentFirst: "first", FragmentLater: "later"}[v]
	case f == DNS && v >= DNSResponse:
		return [...]string{"response", "other", "malformed", "none"}[v-DNSResponse]
	case f == ICMP && v >= ICMPv6:
		return fmt.Sprintf("v6/%d/%d", (v-ICMPv6)>>8, v&0xff)
	case f == ICMP:
		return fmt.Sprintf("%d/%d", v>>8, v&0xff)
	}
	return strconv.FormatUint(uint64(v), 10)
}

// checkFields compares p with words like port=80.
func checkFields(t testing.TB, p Packet, want string) {
	t.Helper()
	for _, word := range strings.Fields(want) {
		name, value, _ := strings.Cut(word, "=")
		known := false
		for f := range NumFields {
			if f.String() != name {
				continue
			}
			known = true
			if got := show(f, p.Value[f]); got != value {
				t.Errorf("%s is %s, want %s", name, got, value)
			}
		}
		if !known {
			t.Errorf("no field %s", name)
		}
	}
}
