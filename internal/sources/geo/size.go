// SPDX-License-Identifier: Apache-2.0

package geo

import (
	"encoding/binary"
	"fmt"

	"github.com/oschwald/maxminddb-golang/v2"
)

// The paths from the root to all networks may together have at most freeNodes nodes, plus perNode for each node of the database. In a tree each node
// has one parent. In databases of both families, the nodes of IPv4 have several parents (2002::/16, ::ffff:0:0/96, …).
const (
	freeNodes = 1 << 20
	perNode   = 16
)

// sized rejects a database in which many nodes share the same child nodes, so that it represents far more networks than it has nodes. For example, 32
// nodes can represent 2^32 networks. The database must have been verified.
func sized(db *maxminddb.Reader, content []byte) error {
	most := freeNodes + perNode*db.Metadata.NodeCount
	passed := uint(0)
	open := []uint{0} // a stack of nodes, at most one for each bit of an address
	for len(open) > 0 {
		node := open[len(open)-1]
		open = open[:len(open)-1]
		if node >= db.Metadata.NodeCount {
			continue // not a node: a network, or no data
		}
		if passed++; passed > most {
			return fmt.Errorf("its %d nodes stand for more networks than a database of that size has", db.Metadata.NodeCount)
		}
		left, right := records(content, node, db.Metadata.RecordSize)
		open = append(open, right, left)
	}
	return nil
}

// records returns both records of a node. left is the next node if the next bit of an address is 0. right is the next node if the bit is 1. A record
// has 24, 28 or 32 bits.
func records(content []byte, node, size uint) (left, right uint) {
	of := content[node*size/4:][:size/4]
	switch size {
	case 24:
		return uint(of[0])<<16 | uint(of[1])<<8 | uint(of[2]), uint(of[3])<<16 | uint(of[4])<<8 | uint(of[5])
	case 28:
		return uint(of[3]>>4)<<24 | uint(of[0])<<16 | uint(of[1])<<8 | uint(of[2]), uint(binary.BigEndian.Uint32(of[3:]) & 0xfffffff)
	}
	return uint(binary.BigEndian.Uint32(of)), uint(binary.BigEndian.Uint32(of[4:]))
}
