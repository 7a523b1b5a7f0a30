// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/floodwall/floodwall/internal/bgp/flowspec"
)

// The path attributes that this package parses (RFC 4271, 5.1; RFC 4360; RFC 5701).
const (
	attrASPath          = 2
	attrCommunities     = 16 // extended communities
	attrIPv6Communities = 25 // IPv6-address-specific extended communities

	extendedLength = 0x10 // the length field of the attribute has two bytes

	asSequence = 2 // an ordered segment of an AS path
)

// attributes are the path attributes of a route.
type attributes struct {
	path        []uint32 // the first segment of the AS path, if that segment is a sequence
	empty       bool     // the AS path has no segment
	communities []flowspec.Community
}

// readAttributes parses path attributes.
func readAttributes(b []byte) (a attributes, err error) {
	a.empty = true
	seen := map[byte]bool{}
	for len(b) > 0 {
		header := 3
		if b[0]&extendedLength != 0 {
			header = 4
		}
		if len(b) < header {
			return a, errors.New("its path attributes end within a header")
		}
		kind, length := b[1], int(b[2])
		if header == 4 {
			length = int(binary.BigEndian.Uint16(b[2:]))
		}
		if len(b) < header+length {
			return a, errors.New("its path attributes end within a value")
		}
		if seen[kind] {
			return a, fmt.Errorf("it has the path attribute %d twice", kind)
		}
		seen[kind] = true
		if err := a.add(kind, b[header:header+length]); err != nil {
			return a, err
		}
		b = b[header+length:]
	}
	return a, nil
}

func (a *attributes) add(kind byte, value []byte) error {
	switch kind {
	case attrASPath:
		return a.readPath(value)
	case attrCommunities:
		if len(value)%8 != 0 {
			return errors.New("its extended communities are cut off")
		}
		for ; len(value) > 0; value = value[8:] {
			a.communities = append(a.communities, flowspec.Community(value[:8]))
		}
	case attrIPv6Communities:
		return errors.New("it has IPv6 extended communities, which redirect packets: only drops are supported")
	}
	return nil
}

// readPath parses an AS path with four-byte AS numbers (RFC 6793).
func (a *attributes) readPath(b []byte) error {
	for first := true; len(b) > 0; first = false {
		if len(b) < 2 || len(b) < 2+4*int(b[1]) {
			return errors.New("its AS path is cut off")
		}
		a.empty = false
		end := 2 + 4*int(b[1])
		for at := 2; first && b[0] == asSequence && at < end; at += 4 {
			a.path = append(a.path, binary.BigEndian.Uint32(b[at:]))
		}
		b = b[end:]
	}
	return nil
}
