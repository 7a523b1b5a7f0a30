// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Recordings returns the recorded attacks. They are read when they are played.
func Recordings() (list []*Model) {
	for _, r := range lab.Recordings {
		list = append(list, &Model{Name: r.Name, Label: r.Label, Lasts: attackTime, Rate: AttackRate})
	}
	return list
}

// Read reads the packets of the attack of a model of Recordings from a directory. It returns an fs.ErrNotExist if the directory does not contain
// them.
func (m *Model) Read(dir string) error {
	for _, r := range lab.Recordings {
		if r.Name == m.Name {
			list, err := readCapture(filepath.Join(dir, r.File), r.Attacks)
			if err == nil && len(list) == 0 {
				err = errors.New("no IPv4 packet of the attack is in it")
			}
			if err != nil {
				return fmt.Errorf("capture %s: %w", filepath.Join(dir, r.File), err)
			}
			m.Recorded = list
		}
	}
	return nil
}

// mostRecorded is the largest number of packets of a capture. longestFrame is the longest frame with the usual MTU.
const mostRecorded, longestFrame = 200_000, etherHeader + 1500

// packetReader reads a capture.
type packetReader interface {
	ReadPacketData() ([]byte, gopacket.CaptureInfo, error)
	LinkType() layers.LinkType
}

// openCapture tells pcapng from pcap by the first block (draft-ietf-opsawg-pcapng), as the name of a file may be wrong.
func openCapture(text []byte) (packetReader, error) {
	if bytes.HasPrefix(text, []byte{0x0a, 0x0d, 0x0d, 0x0a}) {
		return pcapgo.NewNgReader(bytes.NewReader(text), pcapgo.DefaultNgReaderOptions)
	}
	return pcapgo.NewReader(bytes.NewReader(text))
}

// readCapture reads the IPv4 packets of an attack, and redirects them to the host. Bytes that were not captured are zero.
func readCapture(file string, attacks func(*packet.Packet) bool) (list []Frame, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r, err := openCapture(text)
	if err != nil {
		return nil, err
	}
	if r.LinkType() != layers.LinkTypeEthernet {
		return nil, fmt.Errorf("link type %v: only Ethernet is known", r.LinkType())
	}
	var first time.Time
	for len(list) < mostRecorded {
		data, info, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if len(data) < etherHeader+ipHeader || info.Length > longestFrame || binary.BigEndian.Uint16(data[12:]) != 0x0800 {
			continue
		}
		frame := append(bytes.Clone(data), make([]byte, max(0, info.Length-len(data)))...)
		if p := packet.Decode(frame); !attacks(&p) {
			continue
		}
		if first.IsZero() {
			first = info.Timestamp
		}
		toHost(frame[etherHeader:])
		list = append(list, Frame{info.Timestamp.Sub(first), frame})
	}
	return list, nil
}

// toHost changes the destination of an IPv4 packet to the host, and corrects the checksums. Later fragments have no checksum over the addresses.
func toHost(ip []byte) {
	header := int(ip[0]&15) * 4
	if header < ipHeader || len(ip) < header {
		return
	}
	host := Host.As4()
	copy(ip[16:], host[:])
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], ^fold(sum(ip[:header], 0)))
	total := min(len(ip), int(binary.BigEndian.Uint16(ip[2:])))
	if binary.BigEndian.Uint16(ip[6:])&0x3fff != 0 || total < header {
		return // a fragment: its checksum covers the whole packet
	}
	at := map[lab.Proto]int{lab.UDP: 6, lab.TCP: 16}[lab.Proto(ip[9])]
	if l4 := ip[header:total]; at > 0 && len(l4) >= at+2 {
		putSum(l4, at, [4]byte(ip[12:16]), host, lab.Proto(ip[9]))
	}
}
