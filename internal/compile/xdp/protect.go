// SPDX-License-Identifier: Apache-2.0

package xdp

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Limits of struct protection in bpf/protection.h, and its flags.
const (
	maxSynLimits         = 5
	protectAlways        = 1
	protectAuthenticated = 2

	maxProtections = 255 // numbers of protections, from 1 on, are bytes in the map of ports
)

// Sizes of the flow table. If a bucket has four flows on average, one bucket in fifty would need more than its eight slots.
const (
	flowsOfBucket  = 4
	minFlowBuckets = 64      // a word of the filter
	maxFlowBuckets = 1 << 25 // the filter for this number of buckets has 4 MB, the largest map value before Linux 6.7 (array_map_alloc_check)
)

// protectPart returns the component of protections. It does not contain the rules that use them. ingress reports whether the component needs the
// program for packets that XDP has passed. The loader chooses the keys. Later generations keep the keys, flows and states.
func protectPart(p *ir.Program, found []ir.Handshake) (_ component, ingress bool, err error) {
	if !slices.ContainsFunc(p.Rules, func(r ir.Rule) bool { return r.Protect > 0 }) {
		return component{}, false, nil
	}
	for i := range p.Protections {
		if n := len(p.Protections[i].Limits); n > maxSynLimits {
			return component{}, false, fmt.Errorf("service %q has %d limits of SYN-ACKs, at most %d fit", p.Protections[i].Service, n, maxSynLimits)
		}
	}
	buckets, err := flowBuckets(p.Protections)
	if err != nil {
		return component{}, false, err
	}
	n := uint32(len(p.Protections))
	if n > maxProtections {
		return component{}, false, fmt.Errorf("%d services are protected, at most %d can be", n, maxProtections)
	}
	host, router := uses(found, ir.MethodHost), uses(found, ir.MethodRouter)
	ports := image.Shape{ValueSize: packet.PortUDP, Entries: 1}
	return component{
		constants: map[string]any{
			"protects": true, "protect_host": host, "protect_listener": uses(found, ir.MethodListener), "protect_router": router,
			"ask_conntrack": router, "flow_mask": buckets - 1,
		},
		shapes: map[string]image.Shape{
			image.Protections:      {ValueSize: uint32(image.ProtectionSize), Entries: n},
			image.ProtectionStates: {ValueSize: image.ProtectionStateSize, Entries: n},
			image.HostPorts:        ports,
			image.Flows:            {ValueSize: image.FlowBucketSize, Entries: buckets},
			image.FlowFilter:       {ValueSize: buckets / 8, Entries: 1},
			image.SynKeys:          {ValueSize: image.SynKeysSize, Entries: 1},
			image.CookiesSent:      {ValueSize: image.SentNotes, Entries: 1},
		},
		fill: func(memory map[string][]byte) error {
			for i := range p.Protections {
				writeProtection(memory[image.Protections][i*image.ProtectionSize:], &p.Protections[i], &found[i])
				if found[i].Method == ir.MethodHost {
					writePorts(into(memory, image.HostPorts, ports), p.Protections[i].Ports, byte(i+1))
				}
			}
			return nil
		},
	}, host, nil
}

func uses(found []ir.Handshake, m ir.CookieMethod) bool {
	return slices.ContainsFunc(found, func(f ir.Handshake) bool { return f.Method == m })
}

// flowBuckets returns the number of buckets of the flow table. All protections share the table.
func flowBuckets(list []ir.Protection) (uint32, error) {
	flows := 0
	for i := range list {
		flows += list[i].Flows
	}
	buckets := uint32(minFlowBuckets)
	for int(buckets)*flowsOfBucket < flows {
		if buckets == maxFlowBuckets {
			return 0, fmt.Errorf("all protected services together shall remember %d connections, at most %d fit", flows, maxFlowBuckets*flowsOfBucket)
		}
		buckets *= 2
	}
	return buckets, nil
}

// FlowMemory returns the size in bytes of the flow table of a program. All protections share the table.
func FlowMemory(p *ir.Program) (int, error) {
	buckets, err := flowBuckets(p.Protections)
	return int(buckets) * image.FlowBucketSize, err
}

// writeProtection writes struct protection.
func writeProtection(to []byte, p *ir.Protection, f *ir.Handshake) {
	s := image.ProtectionRecord{
		Method: uint32(f.Method), Offers: uint32(f.Options), Mss: f.MSS, Window: f.Window, Wscale: f.WScale,
		NumLimits: uint8(len(p.Limits)), Displace: uint32(p.Displace),
	}
	if p.Always {
		s.Flags |= protectAlways
	} else {
		s.Start, s.Stop = uint32(p.Start), uint32(p.Stop)
	}
	for _, limit := range p.Keyed {
		s.Flags |= protectAuthenticated
		s.Authenticated = uint32(limit)
	}
	for i, limit := range p.Limits {
		s.Limits[i] = uint32(limit)
	}
	copy(s.Slots[:], f.Slots[:])
	image.Put(to, s)
}

func outcomeSlots(found []ir.Handshake) (slots []uint32) {
	for _, f := range found {
		slots = append(slots, f.Slots[:]...)
	}
	return slots
}
