// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"time"
)

// pcapng reads files of the newer format (draft-ietf-opsawg-pcapng). A file consists of blocks, which have a type and have their length at both ends.
type pcapng struct {
	in         io.Reader
	order      binary.ByteOrder
	interfaces []ngInterface // devices of the present section
	skip       bool          // skip the section, because its version is unknown
}

// ngInterface is a device of a file.
type ngInterface struct {
	link, snapLength uint32
	perSecond        uint64 // time units in a second
	offset           int64  // number of seconds to add to times
}

// Types of blocks, and the number that shows the byte order of a section.
const (
	ngSection   = 0x0a0d0d0a
	ngDevice    = 1
	ngOldPacket = 2
	ngSimple    = 3
	ngPacket    = 6
	ngOrder     = 0x1a2b3c4d
)

// Options of blocks.
const (
	ngEnd        = 0
	ngComment    = 1
	ngName       = 2  // of a device
	ngProgram    = 4  // of a section: the program that wrote it
	ngResolution = 9  // of times
	ngOffset     = 14 // of times
)

const (
	ngEnds       = 8 + 4 // bytes of a block around its body
	microseconds = 6     // the resolution of times without the option
)

// errShort is the error for a block that is too short for its content.
var errShort = errors.New("a block is too short")

func newPcapng(in io.Reader) (*pcapng, error) {
	p := &pcapng{in: in, order: binary.LittleEndian}
	kind, body, err := p.block()
	if err == nil && kind == ngSection {
		err = p.section(body)
	}
	return p, err
}

// block reads a block.
func (p *pcapng) block() (kind uint32, body []byte, err error) {
	var head [8]byte
	if _, err := io.ReadFull(p.in, head[:]); err != nil {
		return 0, nil, err
	}
	kind = p.order.Uint32(head[:])
	if kind == ngSection { // the type of a section is the same in both byte orders
		if body, err = readBytes(p.in, 4); err != nil {
			return 0, nil, err
		}
		switch {
		case binary.LittleEndian.Uint32(body) == ngOrder:
			p.order = binary.LittleEndian
		case binary.BigEndian.Uint32(body) == ngOrder:
			p.order = binary.BigEndian
		default:
			return 0, nil, fmt.Errorf("a section has the byte order %x", body)
		}
	}
	length := p.order.Uint32(head[4:])
	if length%4 != 0 || int(length) < ngEnds+len(body) {
		return 0, nil, fmt.Errorf("a block has the length %d", length)
	}
	rest, err := readBytes(p.in, int(length)-8-len(body))
	if err != nil {
		return 0, nil, err
	}
	end := len(rest) - 4
	if again := p.order.Uint32(rest[end:]); again != length {
		return 0, nil, fmt.Errorf("a block has the length %d, and %d at its end", length, again)
	}
	return kind, append(body, rest[:end]...), nil
}

func (p *pcapng) next() (captured, error) {
	for {
		kind, body, err := p.block()
		if err != nil {
			return captured{}, err
		}
		switch {
		case kind == ngSection:
			err = p.section(body)
		case p.skip:
		case kind == ngDevice:
			err = p.device(body)
		case kind == ngPacket, kind == ngOldPacket:
			return p.packet(kind, body)
		case kind == ngSimple:
			return p.simple(body)
		}
		if err != nil {
			return captured{}, err
		}
	}
}

func (p *pcapng) section(body []byte) error {
	if len(body) < 16 {
		return errShort
	}
	major, minor := p.order.Uint16(body[4:]), p.order.Uint16(body[6:])
	p.interfaces, p.skip = nil, major != 1 || minor != 0 && minor != 2 // 2 means the same as 0 (section 4.1)
	return nil
}

func (p *pcapng) device(body []byte) error {
	if len(body) < 8 {
		return errShort
	}
	i := ngInterface{link: uint32(p.order.Uint16(body)), snapLength: p.order.Uint32(body[4:])}
	resolution := byte(microseconds)
	for options := body[8:]; len(options) >= 4; {
		code, n := p.order.Uint16(options), int(p.order.Uint16(options[2:]))
		if code == ngEnd {
			break
		}
		if 4+n > len(options) {
			return errShort
		}
		value := options[4 : 4+n]
		switch {
		case code == ngResolution && n >= 1:
			resolution = value[0]
		case code == ngOffset && n >= 8:
			i.offset = int64(p.order.Uint64(value))
		}
		options = options[min(4+padded(n), len(options)):]
	}
	const binaryUnit, mostBinary, mostDecimal = 0x80, 63, 19 // the limits of 64 bits
	exponent := resolution &^ binaryUnit
	switch {
	case resolution&binaryUnit != 0 && exponent <= mostBinary:
		i.perSecond = 1 << exponent
	case resolution&binaryUnit == 0 && exponent <= mostDecimal:
		i.perSecond = 1
		for range exponent {
			i.perSecond *= 10
		}
	default:
		return fmt.Errorf("a device has times in units of 2 or 10 to the power of -%d", exponent)
	}
	p.interfaces = append(p.interfaces, i)
	return nil
}

// padded returns a length rounded up to a multiple of four.
func padded(n int) int { return (n + 3) &^ 3 }

// at returns the time for a number of the device's time units.
func (i *ngInterface) at(units uint64) time.Time {
	high, low := bits.Mul64(units%i.perSecond, uint64(time.Second))
	nanoseconds, _ := bits.Div64(high, low, i.perSecond)
	return time.Unix(int64(units/i.perSecond)+i.offset, int64(nanoseconds)).UTC()
}

func (p *pcapng) packet(kind uint32, body []byte) (c captured, err error) {
	if len(body) < 20 {
		return c, errShort
	}
	number := p.order.Uint32(body)
	if kind == ngOldPacket {
		number = uint32(p.order.Uint16(body))
	}
	if uint64(number) >= uint64(len(p.interfaces)) {
		return c, fmt.Errorf("a packet is of device %d, and there are %d", number, len(p.interfaces))
	}
	i := &p.interfaces[number]
	have, length := p.order.Uint32(body[12:]), p.order.Uint32(body[16:])
	if uint64(have) > uint64(len(body)-20) {
		return c, errShort
	}
	at := i.at(uint64(p.order.Uint32(body[4:]))<<32 | uint64(p.order.Uint32(body[8:])))
	return captured{at, i.link, int(length), body[20 : 20+have]}, nil
}

// simple reads a simple packet block, which contains only the packet's bytes. The packet belongs to the first device.
func (p *pcapng) simple(body []byte) (c captured, err error) {
	if len(body) < 4 || len(p.interfaces) == 0 {
		return c, errShort
	}
	i := &p.interfaces[0]
	length := p.order.Uint32(body)
	have := length
	if i.snapLength != 0 {
		have = min(length, i.snapLength)
	}
	if uint64(have) > uint64(len(body)-4) {
		return c, errShort
	}
	return captured{link: i.link, length: int(length), data: body[4 : 4+have]}, nil
}
