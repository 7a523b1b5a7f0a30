// SPDX-License-Identifier: Apache-2.0

package geo_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/sources/geo"
)

// database returns a database of IPv4 or IPv6 in MaxMind's format (version 2.0). Each node has the records for bit 0 and for bit 1. Record
// len(nodes)+16 is the first byte of the data.
func database(version byte, nodes [][2]int, data []byte) []byte {
	var b bytes.Buffer
	for _, n := range nodes {
		for _, record := range n {
			b.Write([]byte{byte(record >> 16), byte(record >> 8), byte(record)})
		}
	}
	b.Write(make([]byte, 16))
	b.Write(data)
	b.WriteString("\xab\xcd\xefMaxMind.com\xe9")
	b.WriteString("\x4anode_count\xc3")
	b.Write([]byte{byte(len(nodes) >> 16), byte(len(nodes) >> 8), byte(len(nodes))})
	b.WriteString("\x4brecord_size\xa1\x18\x4aip_version\xa1")
	b.WriteByte(version)
	b.WriteString("\x4ddatabase_type\x44Test\x49languages\x00\x04\x5bbinary_format_major_version\xa1\x02\x5bbinary_format_minor_version\xa0")
	b.WriteString("\x4bbuild_epoch\x01\x02\x01\x4bdescription\xe1\x42en\x44Test")
	return b.Bytes()
}

const ofXX = "\xe1\x47country\xe1\x48iso_code\x42XX"

// shared returns a tree in which both records of each node lead to the same node. So each level doubles the number of networks.
func shared(depth, leaf int) (nodes [][2]int) {
	for i := range depth {
		nodes = append(nodes, [2]int{i + 1, i + 1})
	}
	nodes[depth-1] = [2]int{leaf, leaf}
	return nodes
}

// TestShared checks small databases that represent 2^32 networks and more, because several nodes lead to the same node. They must be rejected at
// once. A database with a few shared nodes must be accepted, because some writers produce it.
func TestShared(t *testing.T) {
	t.Parallel()
	cycle := shared(32, 32+16)
	cycle[31][1] = 3
	for name, c := range map[string]struct {
		content []byte
		says    string
	}{
		"IPv4":                        {database(4, shared(32, 32+16), []byte(ofXX)), "more networks than"},
		"IPv6":                        {database(6, shared(128, 128+16), []byte(ofXX)), "more networks than"},
		"IPv6, nothing below":         {database(6, shared(128, 128), []byte(ofXX)), "mmdb"},
		"IPv4, an empty value":        {database(4, shared(32, 32+16), []byte("\xe0")), "more networks than"},
		"a loop":                      {database(4, cycle, []byte(ofXX)), "search tree"},
		"beyond the data":             {database(4, shared(8, 8+16+1000), []byte(ofXX)), "mmdb"},
		"a string longer than a file": {database(4, shared(8, 8+16), []byte("\xe1\x47country\x5f\xff\xff\xff")), "mmdb"},
		"a few":                       {database(4, shared(8, 8+16), []byte(ofXX)), ""},
	} {
		file := filepath.Join(t.TempDir(), "a.mmdb")
		if err := os.WriteFile(file, c.content, 0o600); err != nil {
			t.Fatal(err)
		}
		_, n, err := geo.Read(file, geo.Wanted{Countries: []string{"XX"}})
		switch {
		case c.says == "" && (err != nil || n != 256):
			t.Errorf("%s: %d networks, %v", name, n, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %v, want an error that says %q", name, err, c.says)
		}
	}
}
