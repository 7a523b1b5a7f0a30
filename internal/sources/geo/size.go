package geo

import (
	"encoding/binary"
	"fmt"

	"github.com/oschwald/maxminddb-golang/v2"
)

// How many nodes are passed on the way to all networks, beside perNode for each node of the database. A tree has each node once; the nodes of
// IPv4 are below several others in databases of both families (2002::/16, ::ffff:0:0/96, …).
const (
	freeNodes = 1 << 20
	perNode   = 16
)

// sized refuses a database in which so many nodes lead to the same ones that it stands for far more networks than it has nodes: with 32 nodes
// these can be 2^32. The database was verified.
func sized(db *maxminddb.Reader, content []byte) error {
	most := freeNodes + perNode*db.Metadata.NodeCount
	passed := uint(0)
	open := []uint{0} // at most one for each bit of an address
	for len(open) > 0 {
		node := open[len(open)-1]
		open = open[:len(open)-1]
		if node >= db.Metadata.NodeCount {
			continue // a network, or none
		}
		if passed++; passed > most {
			return fmt.Errorf("its %d nodes stand for more networks than a database of that size has", db.Metadata.NodeCount)
		}
		left, right := records(content, node, db.Metadata.RecordSize)
		open = append(open, right, left)
	}
	return nil
}

// records are those of a node: what follows where the next bit of an address is 0, and 1. They have 24, 28 or 32 bits.
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
