// SPDX-License-Identifier: Apache-2.0

package sample_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/daemon/sample"
)

// FuzzCapture reads any bytes as a file of packets. It must end, and return no more than the file can contain.
func FuzzCapture(f *testing.F) {
	for _, file := range forms() {
		f.Add(file)
	}
	path := filepath.Join(f.TempDir(), "file")
	f.Fuzz(func(t *testing.T, file []byte) {
		check(t, os.WriteFile(path, file, 0o600))
		r, err := sample.OpenFile(path)
		if err != nil {
			return
		}
		defer r.Close()
		most := len(file)
		if bytes.HasPrefix(file, []byte{0x1f, 0x8b}) { // gzip: a byte expands to at most 1032 (RFC 1951)
			most *= 1032
		}
		for bytes, packets := 0, 0; ; packets++ {
			p, err := r.Read()
			if err != nil {
				return
			}
			if bytes += len(p.Frame); bytes > most+14*packets+14 || packets > most {
				t.Fatalf("%d bytes in %d packets, of a file with %d bytes", bytes, packets, len(file))
			}
			if p.Length < len(p.Frame) {
				t.Fatalf("%d bytes of a packet with %d", len(p.Frame), p.Length)
			}
		}
	})
}

// FuzzStream reads any text as samples of the daemon. It must end.
func FuzzStream(f *testing.F) {
	const first, last = "{\"one_in\": 2}\n", "{\"lost\": 3}\n"
	f.Add(first + last)
	f.Add(first + "{\"time\":\"1970-01-01T00:00:01Z\",\"device\":\"eth0\",\"verdict\":\"drop\",\"stands\":10,\"length\":1500,\"frame\":\"AQID\"}\n" + last)
	f.Add(first + "{\"device\": \"et")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := sample.NewStream(io.NopCloser(strings.NewReader(text)))
		if err != nil {
			return
		}
		if s.OneIn() == 0 {
			t.Error("the share is missing")
		}
		for range len(text) {
			if _, err = s.Read(t.Context()); err != nil {
				break
			}
		}
		if err == nil {
			t.Errorf("%q has no end", text)
		}
	})
}
