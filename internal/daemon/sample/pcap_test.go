// SPDX-License-Identifier: Apache-2.0

package sample_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/floodwall/floodwall/internal/daemon/sample"
)

// words encodes the values of a file: 16-bit numbers, 32-bit numbers, and bytes.
func words(order binary.AppendByteOrder, values ...any) (text []byte) {
	for _, v := range values {
		switch v := v.(type) {
		case uint16:
			text = order.AppendUint16(text, v)
		case int:
			text = order.AppendUint32(text, uint32(v))
		case uint64:
			text = order.AppendUint64(text, v)
		case []byte:
			text = append(text, v...)
		}
	}
	return text
}

// block encodes a block of pcapng.
func block(order binary.AppendByteOrder, kind int, values ...any) []byte {
	body := words(order, values...)
	body = append(body, make([]byte, -len(body)&3)...)
	return words(order, kind, 12+len(body), body, 12+len(body))
}

// forms returns files of both formats, in both byte orders, with all of pcapng's blocks and options for packets.
func forms() map[string][]byte {
	files := map[string][]byte{}
	frame := bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7}, 9)
	for name, order := range map[string]binary.AppendByteOrder{"little": binary.LittleEndian, "big": binary.BigEndian} {
		for unit, magic := range map[string]int{"micro": 0xa1b2c3d4, "nano": 0xa1b23c4d} {
			files["pcap "+unit+" "+name] = words(order, magic, uint16(2), uint16(4), 0, 0, 100, 1, 1_700_000_000, 999_999, len(frame), 1500, frame, 1_700_000_001, 1, 14, 14, frame[:14])
		}
		section := block(order, 0x0a0d0d0a, 0x1a2b3c4d, uint16(1), uint16(0), ^uint64(0), uint16(1), uint16(3), []byte("why\x00"))
		device := func(link int, options ...any) []byte {
			return block(order, 1, append([]any{uint16(link), uint16(0), 50}, options...)...)
		}
		packet := func(device int, at uint64) []byte {
			return block(order, 6, device, int(at>>32), int(at&0xffffffff), len(frame), 1500, frame, []byte{0}, uint16(1), uint16(2), []byte("hi\x00\x00"), 0)
		}
		files["pcapng "+name] = slices.Concat(section,
			device(1), device(101, uint16(9), uint16(1), []byte{0x8a, 0, 0, 0}, uint16(14), uint16(8), uint64(3600), 0), device(1, uint16(2), uint16(2), []byte("e0\x00\x00"), uint16(9), uint16(1), []byte{12, 0, 0, 0}),
			packet(0, 1_700_000_000_000_001), packet(1, 1_700_000_000<<10), packet(2, 1_700_000_000_123_456_789),
			block(order, 4, 0), // a block of names, which the reader skips
			block(order, 3, 60, frame[:50]),
			block(order, 2, uint16(1), uint16(7), 0, 1024, 14, 14, frame[:14]),
			section, device(1), packet(0, 2_000_000))
		files["pcapng of other versions "+name] = slices.Concat(section, device(1), packet(0, 1),
			block(order, 0x0a0d0d0a, 0x1a2b3c4d, uint16(7), uint16(0), ^uint64(0)), device(1), packet(0, 2), section, device(1), packet(0, 3))
	}
	return files
}

// TestFormats compares the packets of files with gopacket's.
func TestFormats(t *testing.T) {
	t.Parallel()
	for name, file := range forms() {
		path := filepath.Join(t.TempDir(), "file")
		check(t, os.WriteFile(path, file, 0o600))
		var got, want string
		for _, p := range readAll(t, path) {
			got += fmt.Sprintf("%v %d %x\n", p.Time, p.Length, p.Frame)
		}
		read := oracle(t, file)
		for {
			data, at, length, link, err := read()
			if errors.Is(err, io.EOF) {
				break
			}
			check(t, err)
			if link == layers.LinkTypeRaw {
				data, length = append(append(make([]byte, 12), 0x08, 0x00), data...), length+14
			}
			want += fmt.Sprintf("%v %d %x\n", at, length, data)
		}
		if got != want || want == "" {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
}

// oracle returns a function that reads a file with gopacket.
func oracle(t *testing.T, file []byte) func() (data []byte, at any, length int, link layers.LinkType, err error) {
	if old, err := pcapgo.NewReader(bytes.NewReader(file)); err == nil {
		return func() ([]byte, any, int, layers.LinkType, error) {
			data, info, err := old.ReadPacketData()
			return data, info.Timestamp, info.Length, old.LinkType(), err
		}
	}
	ng, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.NgReaderOptions{WantMixedLinkType: true, SkipUnknownVersion: true})
	check(t, err)
	return func() ([]byte, any, int, layers.LinkType, error) {
		data, info, err := ng.ReadPacketData()
		if err != nil {
			return nil, nil, 0, 0, err
		}
		return data, info.Timestamp, info.Length, info.AncillaryData[0].(layers.LinkType), nil
	}
}

// TestDamaged reads files with changed bytes, or without their end. The only result must be an error that says what is wrong.
func TestDamaged(t *testing.T) {
	t.Parallel()
	random, path := rand.New(rand.NewPCG(1, 2)), filepath.Join(t.TempDir(), "file")
	for name, whole := range forms() {
		for range 100 {
			file := bytes.Clone(whole[:len(whole)-random.IntN(2)*random.IntN(len(whole))])
			for range random.IntN(4) {
				if len(file) > 0 {
					file[random.IntN(len(file))] = byte(random.Uint32())
				}
			}
			check(t, os.WriteFile(path, file, 0o600))
			r, err := sample.OpenFile(path)
			for packets := 0; err == nil; packets++ {
				if _, err = r.Read(); packets > len(whole) {
					t.Fatalf("%s: there is no end of packets", name)
				}
			}
			if r != nil {
				check(t, r.Close())
			}
			if why := (*sample.FileError)(nil); !errors.Is(err, io.EOF) && !errors.As(err, &why) {
				t.Fatalf("%s: %v, of\n%x", name, err, file)
			}
		}
	}
}
