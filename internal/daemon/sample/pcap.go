// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// captured is a packet as a file contains it.
type captured struct {
	at     time.Time // zero when the file has no time
	link   uint32    // the link layer of the packet (https://www.tcpdump.org/linktypes.html)
	length int       // length of the whole packet
	data   []byte    // the captured bytes
}

// format reads the packets of a file format. next returns io.EOF or io.ErrUnexpectedEOF after the last complete packet.
type format interface{ next() (captured, error) }

// pcap reads files of the older pcap format (draft-ietf-opsawg-pcap).
type pcap struct {
	in         io.Reader
	order      binary.ByteOrder
	unit       int64 // unit of the fraction in a time, in nanoseconds
	snapLength uint32
	link       uint32
}

// The magic numbers of pcap files, in the byte order of the machine that wrote the file.
const (
	microMagic = 0xa1b2c3d4
	nanoMagic  = 0xa1b23c4d
)

func newPcap(in io.Reader) (*pcap, error) {
	var head [24]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return nil, err
	}
	p := &pcap{in: in, order: binary.LittleEndian, unit: 1000}
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		switch order.Uint32(head[:]) {
		case microMagic:
			p.order = order
		case nanoMagic:
			p.order, p.unit = order, 1
		default:
			continue
		}
		if major, minor := order.Uint16(head[4:]), order.Uint16(head[6:]); major != 2 || minor != 4 {
			return nil, fmt.Errorf("version %d.%d of pcap is not known", major, minor)
		}
		p.snapLength, p.link = order.Uint32(head[16:]), order.Uint32(head[20:])
		return p, nil
	}
	return nil, fmt.Errorf("it begins with %x", head[:4])
}

func (p *pcap) next() (c captured, err error) {
	var head [16]byte
	if _, err := io.ReadFull(p.in, head[:]); err != nil {
		return c, err
	}
	have, length := p.order.Uint32(head[8:]), p.order.Uint32(head[12:])
	if have > p.snapLength || have > length {
		return c, fmt.Errorf("a packet of %d bytes has %d, where %d are the most", length, have, p.snapLength)
	}
	c.at = time.Unix(int64(p.order.Uint32(head[:])), int64(p.order.Uint32(head[4:]))*p.unit).UTC()
	c.link, c.length = p.link, int(length)
	c.data, err = readBytes(p.in, int(have))
	return c, err
}

// trusted is the number of bytes that are allocated before they are read. It is limited because a length in a file may be wrong.
const trusted = 256 << 10

// readBytes reads n bytes.
func readBytes(in io.Reader, n int) (data []byte, err error) {
	for len(data) < n && err == nil {
		at := len(data)
		data = append(data, make([]byte, min(n-at, max(trusted, at)))...)
		_, err = io.ReadFull(in, data[at:])
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return data, err
}
