// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net"
	"net/netip"
	"strings"
	"testing"
)

// TestFlowErrors needs no kernel: mistakes are found before anything is loaded.
func TestFlowErrors(t *testing.T) {
	device := &Device{Name: "d", MTU: 1500, MAC: make(net.HardwareAddr, 6), Peer: &Device{MAC: make(net.HardwareAddr, 6)}}
	one, six := MustAddrs("192.0.2.1"), MustAddrs("2001:db8::1")
	for _, tt := range []struct {
		flows []Flow
		want  string
	}{
		{[]Flow{{To: one}}, "flow 0: from: no addresses"},
		{[]Flow{{From: one}}, "flow 0: to: no addresses"},
		{[]Flow{{From: Listed(nil), To: one}}, "flow 0: from: no addresses"},
		{[]Flow{{From: one, To: one}, {From: one, To: six}},
			"flow 1: to: address 2001:db8::1 is of the other family; use one flow for each"},
		{[]Flow{{From: Listed([]netip.Addr{one.first(), six.first()}), To: one}},
			"flow 0: from: address 2001:db8::1 is of the other family; use one flow for each"},
		{[]Flow{{From: one, To: one, Proto: 47}}, "flow 0: protocol 47: only UDP, TCP and ICMP can be generated"},
		{[]Flow{{From: one, To: one, Proto: TCP, Options: []byte{1}}},
			"flow 0: tcp options of 1 bytes: must be whole words, and at most 40 bytes"},
		{[]Flow{{From: one, To: one, VLAN: []uint16{1, 2, 3}}}, "flow 0: 3 vlan tags: at most two"},
		{[]Flow{{From: one, To: one, VLAN: []uint16{4096}}}, "flow 0: vlan 4096: must be below 4096"},
		{[]Flow{{From: one, To: one, Weight: -1}}, "flow 0: weight -1: must not be negative"},
		{[]Flow{{From: one, To: one, Size: 1519}}, "flow 0: frame of 1519 bytes: device d with MTU 1500 takes 1518"},
	} {
		s := &Source{device: device, options: SourceOptions{Flows: tt.flows}}
		if _, err := s.templates(); err == nil || err.Error() != tt.want {
			t.Errorf("got error %v, want %s", err, tt.want)
		}
	}
}

func TestMixTooLong(t *testing.T) {
	p := newPair(t)
	flows := []Flow{plain, plain}
	flows[1].Payload = make([]byte, 300)
	_, err := p.lab.NewSource(p.a, SourceOptions{Flows: flows})
	if err == nil || !strings.Contains(err.Error(), "flow 1: headers and payload of a flow in a mix must fit in 256 bytes") {
		t.Errorf("got error %v", err)
	}
	if _, err := p.lab.NewSource(p.a, SourceOptions{}); err == nil {
		t.Error("a source without flows: no error")
	}
	if _, err := p.lab.NewSource(p.a, SourceOptions{Flows: flows[:1], Rate: -1}); err == nil {
		t.Error("a source with a negative rate: no error")
	}
	if _, err := p.lab.NewSource(p.a, SourceOptions{Flows: flows[:1], Count: 1, Apart: true}); err == nil {
		t.Error("a source in a process of its own with a count: no error")
	}
}
