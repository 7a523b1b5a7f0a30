// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"fmt"
	"testing"

	"github.com/miekg/dns"
)

// referral returns the response of a server about a name in a zone that is delegated to other servers.
func referral(t testing.TB, name, zone string) []byte {
	t.Helper()
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(name), dns.TypeA)
	m.Response, m.Compress = true, true
	m.Ns = []dns.RR{&dns.NS{Hdr: dns.RR_Header{Name: dns.Fqdn(zone), Rrtype: dns.TypeNS, Class: dns.ClassINET}, Ns: "ns." + dns.Fqdn(zone)}}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestZonesNoIPv6 queries both address types of names that have only one. NODATA may come before the answer. It may also come for more names than the
// program stores. The zone must not count as flooded.
func TestZonesNoIPv6(t *testing.T) {
	for _, first := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS} {
		z := loadZoned(t)
		for i := range newNames + negativeNames + 1 {
			name := fmt.Sprintf("h%d.cloud.example", i)
			has := response(t, name, dns.TypeA, dns.RcodeSuccess, addressRecord(name), "")
			for j := range 2 {
				switch {
				case (first == dns.TypeA) == (j == 0):
					z.leaves(t, "198.51.100.7", has)
				case first == dns.TypeA:
					z.leaves(t, "198.51.100.7", response(t, name, dns.TypeAAAA, dns.RcodeSuccess, nil, "cloud.example"))
				default:
					z.leaves(t, "198.51.100.7", response(t, name, first, dns.RcodeSuccess, nil, "cloud.example"))
				}
			}
		}
		if z.truncates(t, ask(t, "198.51.100.9", "fresh.cloud.example", "")) {
			t.Errorf("names without an IPv6 address, type %d first: the domain is flooded", first)
		}
	}
}

// TestZonesReferral checks an authoritative server that refers clients to the servers of a child zone. Names of the child zone must pass while the
// parent zone is flooded. New names must be charged to the limit of new names.
func TestZonesReferral(t *testing.T) {
	z := loadZoned(t)
	for i := range newNames + 10 {
		z.leaves(t, "198.51.100.7", referral(t, fmt.Sprintf("h%d.child.example.org", i), "child.example.org"))
	}
	z.floods(t, "example.org")
	known := 0
	for i := range newNames + 10 {
		if !z.truncates(t, ask(t, "198.51.100.9", fmt.Sprintf("h%d.child.example.org", i), "")) {
			known++
		}
	}
	if known != newNames {
		t.Errorf("%d names that were referred are known, want %d", known, newNames)
	}
	if !z.truncates(t, ask(t, "198.51.100.9", "other.child.example.org", "")) {
		t.Error("a name that was not referred passes")
	}
}
