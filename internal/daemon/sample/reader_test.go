// SPDX-License-Identifier: Apache-2.0

package sample_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// TestFileReader reads packets of each link layer, in both formats, from files whose names say the wrong one.
func TestFileReader(t *testing.T) {
	t.Parallel()
	const line = "udp 198.51.100.7:999 > 192.0.2.1:53 len=128"
	s, err := packet.Parse(line)
	check(t, err)
	want := s.Frame()
	ip := want[14:]
	at := time.Unix(1_700_000_000, 0).UTC()
	for link, data := range map[layers.LinkType][]byte{
		layers.LinkTypeEthernet: want,
		layers.LinkTypeRaw:      ip,
		layers.LinkTypeLinuxSLL: append(append(make([]byte, 14), 0x08, 0x00), ip...),
		276:                     append(append([]byte{0x08, 0x00}, make([]byte, 18)...), ip...),
		layers.LinkTypeNull:     append([]byte{2, 0, 0, 0}, ip...),
	} {
		var old, ng bytes.Buffer
		info := gopacket.CaptureInfo{Timestamp: at, CaptureLength: len(data) - 10, Length: len(data)}
		w := pcapgo.NewWriter(&old)
		check(t, w.WriteFileHeader(65535, link))
		check(t, w.WritePacket(info, data[:len(data)-10]))
		n, err := pcapgo.NewNgWriter(&ng, link)
		check(t, err)
		check(t, n.WritePacket(info, data[:len(data)-10]))
		check(t, n.Flush())
		for name, file := range map[string]*bytes.Buffer{"old.pcapng": &old, "ng.pcap": &ng, "old.gz": zipped(t, &old), "ng.gz": zipped(t, &ng)} {
			path := filepath.Join(t.TempDir(), name)
			check(t, os.WriteFile(path, file.Bytes(), 0o600))
			got := readAll(t, path)
			if len(got) != 1 || !got[0].Time.Equal(at) || got[0].Length != len(want) || !bytes.Equal(got[0].Frame[12:], want[12:len(want)-10]) {
				t.Errorf("%s of link type %d: %+v, want %x", name, link, got, want)
			}
		}
	}
}

func zipped(t *testing.T, file *bytes.Buffer) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(file.Bytes())
	check(t, err)
	check(t, w.Close())
	return &out
}

func readAll(t *testing.T, path string) (list []sample.Sample) {
	t.Helper()
	r, err := sample.OpenFile(path)
	check(t, err)
	defer r.Close()
	for {
		p, err := r.Read()
		if err == io.EOF {
			return list
		}
		check(t, err)
		list = append(list, p)
	}
}

// TestReaderBounds reads files with a packet whose length is huge, and which really has that length. The files are small, because gzip compresses
// them. They must be refused before the reader uses memory for that length.
func TestReaderBounds(t *testing.T) {
	const length = 200 << 20
	words := func(values ...uint32) (text []byte) {
		for _, v := range values {
			text = binary.LittleEndian.AppendUint32(text, v)
		}
		return text
	}
	for name, head := range map[string][]byte{
		"pcap": words(0xa1b2c3d4, 0x00040002, 0, 0, 0xffffffff, 1, 0, 0, length, length),
		"pcapng": words(0x0a0d0d0a, 28, 0x1a2b3c4d, 1, 0xffffffff, 0xffffffff, 28, 1, 20, 1, 0, 20,
			6, length+32, 0, 0, 0, length, length),
		"an unknown block": words(0x0a0d0d0a, 28, 0x1a2b3c4d, 1, 0xffffffff, 0xffffffff, 28, 77, length+12),
	} {
		path := filepath.Join(t.TempDir(), "file")
		f, err := os.Create(path)
		check(t, err)
		w, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
		check(t, err)
		_, err = w.Write(head)
		check(t, err)
		for range length >> 20 {
			_, err = w.Write(make([]byte, 1<<20))
			check(t, err)
		}
		check(t, errors.Join(w.Close(), f.Close()))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, err := sample.OpenFile(path)
		check(t, err)
		_, err = r.Read()
		check(t, r.Close())
		runtime.ReadMemStats(&after)
		var why *sample.FileError
		if !errors.As(err, &why) || !strings.Contains(why.Error(), "within 16 MB") {
			t.Errorf("%s: %v", name, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > length/2 {
			t.Errorf("%s: it took %d MB of memory", name, took>>20)
		}
	}
}

// TestReaderRefuses opens files that are no captures, damaged, or of an unknown link layer.
func TestReaderRefuses(t *testing.T) {
	t.Parallel()
	header := binary.LittleEndian.AppendUint32(append([]byte{0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0}, make([]byte, 8)...), 65535)
	pcap := func(link byte, rest ...byte) string {
		return string(append(append(bytes.Clone(header), link, 0, 0, 0), rest...))
	}
	packetHeader := []byte{0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0}
	for _, row := range []struct{ name, content, want string }{
		{"empty", "", "cannot be read as a capture"},
		{"text", "devices: [eth0]\n", "cannot be read as a capture"},
		{"damaged", pcap(1, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 127, 0, 0, 0, 0), "is damaged"},
		{"wifi", pcap(105, append(packetHeader, 1, 2, 3, 4)...), "has packets of link type 105"},
	} {
		path := filepath.Join(t.TempDir(), row.name)
		check(t, os.WriteFile(path, []byte(row.content), 0o600))
		r, err := sample.OpenFile(path)
		if err == nil {
			_, err = r.Read()
			check(t, r.Close())
		}
		var why *sample.FileError
		if !errors.As(err, &why) || !strings.Contains(why.Error(), row.want) || why.Remedy == "" {
			t.Errorf("%s: %v, want it to say that it %s", row.name, err, row.want)
		}
	}
	if _, err := sample.OpenFile("/nowhere.pcap"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}
