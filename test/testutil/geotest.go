// SPDX-License-Identifier: Apache-2.0

// This file writes databases in MaxMind's format (https://maxmind.github.io/MaxMind-DB/) for tests and for the examples of the documents.

package testutil

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"os"
)

// Network is a network and its data in the database. An empty Country or an ASN of 0 means that the database has no such data.
type Network struct {
	Prefix  string
	Country string
	ASN     uint32
}

// Write writes a database with MaxMind's fields. A network in another one comes behind it. Write replaces the file atomically, like the programs that
// download databases.
func Write(file string, networks ...Network) error {
	root, data := new(branch), []byte{}
	for _, n := range networks {
		prefix, err := netip.ParsePrefix(n.Prefix)
		if err != nil {
			return err
		}
		root.insert(prefix.Masked(), len(data)+1)
		data = append(data, n.record()...)
	}
	branches := root.list(nil)
	var out bytes.Buffer
	for _, b := range branches {
		for _, to := range b.to {
			value := len(branches) // nothing
			switch {
			case to == nil:
			case to.leaf > 0:
				value += separator + to.leaf - 1
			default:
				value = to.number
			}
			out.Write([]byte{byte(value >> 16), byte(value >> 8), byte(value)})
		}
	}
	out.Write(make([]byte, separator))
	out.Write(data)
	out.WriteString("\xab\xcd\xefMaxMind.com")
	out.Write(mmdbMap("node_count", mmdbUint(len(branches)), "record_size", mmdbUint(24), "ip_version", mmdbUint(6), "database_type", mmdbString("Test"),
		"description", mmdbMap("en", mmdbString("for tests")),
		"binary_format_major_version", mmdbUint(2), "binary_format_minor_version", mmdbUint(0)))
	if err := os.WriteFile(file+".new", out.Bytes(), 0o666); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// separator is the number of zero bytes between the tree and the data.
const separator = 16

// branch is a node of the tree over the bits of an address, or a leaf. IPv4 addresses are in ::/96.
type branch struct {
	to     [2]*branch
	number int // of a node
	leaf   int // offset of the data, plus one; 0: a node
}

func (b *branch) insert(prefix netip.Prefix, leaf int) {
	address, bits := prefix.Addr().AsSlice(), prefix.Bits()
	if len(address) == 4 {
		address, bits = append(make([]byte, 12), address...), bits+96
	}
	for i := range bits {
		if b.leaf > 0 { // of a larger network
			b.to, b.leaf = [2]*branch{{leaf: b.leaf}, {leaf: b.leaf}}, 0
		}
		next := &b.to[address[i/8]>>(7-i%8)&1]
		if *next == nil {
			*next = new(branch)
		}
		b = *next
	}
	*b = branch{leaf: leaf}
}

// list numbers the nodes, and appends them.
func (b *branch) list(all []*branch) []*branch {
	if b == nil || b.leaf > 0 {
		return all
	}
	b.number = len(all)
	all = append(all, b)
	return b.to[1].list(b.to[0].list(all))
}

// record returns the data of the network.
func (n Network) record() []byte {
	var fields []any
	if n.Country != "" {
		fields = append(fields, "country", mmdbMap("iso_code", mmdbString(n.Country)))
	}
	if n.ASN != 0 {
		fields = append(fields, "autonomous_system_number", mmdbUint(int(n.ASN)))
	}
	return mmdbMap(fields...)
}

// The encodings of the format. Sizes are below 29. A uint32 is read where a uint16 is asked for.

func mmdbString(s string) []byte { return append([]byte{2<<5 | byte(len(s))}, s...) }

func mmdbUint(n int) []byte {
	b := bytes.TrimLeft(binary.BigEndian.AppendUint32(nil, uint32(n)), "\x00")
	return append([]byte{6<<5 | byte(len(b))}, b...)
}

// mmdbMap encodes names, each followed by its encoded value.
func mmdbMap(fields ...any) []byte {
	b := []byte{7<<5 | byte(len(fields)/2)}
	for _, f := range fields {
		switch f := f.(type) {
		case string:
			b = append(b, mmdbString(f)...)
		case []byte:
			b = append(b, f...)
		}
	}
	return b
}
