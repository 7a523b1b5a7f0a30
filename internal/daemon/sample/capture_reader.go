// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// FileReader reads packets from a pcap or pcapng file, which may be compressed with gzip. It recognizes the format by the content.
type FileReader struct {
	name string
	file *os.File
	in   bounded
	form format
}

// mostBytes is the largest number of bytes that are read from a file for one packet with its headers. A length in a damaged file can be 4 GB, and a
// small gzip file can expand to that size. The longest packets of Linux have half a megabyte.
const mostBytes = 16 << 20

// bounded is a reader with a limit.
type bounded struct {
	in   io.Reader
	left int
}

var errTooLong = fmt.Errorf("there is no end of a packet within %d MB", mostBytes>>20)

func (b *bounded) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, errTooLong
	}
	n, err := b.in.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// pcapngMagic is the type of the section header block at the start of a pcapng file (draft-ietf-opsawg-pcapng, 4.1).
var pcapngMagic = [4]byte{0x0a, 0x0d, 0x0d, 0x0a}

var gzipMagic = [2]byte{0x1f, 0x8b} // RFC 1952, 2.3.1

// OpenFile opens a file of packets. It returns a *FileError when the content is neither pcap nor pcapng.
func OpenFile(name string) (*FileReader, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	r := &FileReader{name: name, file: f}
	if err := r.begin(bufio.NewReader(f)); err != nil {
		f.Close()
		return nil, &FileError{name, fmt.Sprintf("cannot be read as a capture: %v", err), "name a file in pcap or pcapng format, as `tcpdump -w` writes it"}
	}
	return r, nil
}

func (r *FileReader) begin(in *bufio.Reader) error {
	magic, err := in.Peek(len(pcapngMagic))
	if err == nil && [2]byte(magic) == gzipMagic {
		var plain *gzip.Reader
		if plain, err = gzip.NewReader(in); err == nil {
			in = bufio.NewReader(plain)
			magic, err = in.Peek(len(pcapngMagic))
		}
	}
	if err != nil {
		return err
	}
	r.in = bounded{in, mostBytes}
	if [4]byte(magic) == pcapngMagic {
		r.form, err = newPcapng(&r.in)
	} else {
		r.form, err = newPcap(&r.in)
	}
	return err
}

// Read reads a packet and returns it as an Ethernet frame. It replaces the header of another link layer. It returns io.EOF after the last complete
// packet, because another program may still be writing the file. It returns a *FileError when the file is damaged, or when its link layer is unknown.
func (r *FileReader) Read() (Sample, error) {
	r.in.left = mostBytes
	c, err := r.form.next()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return Sample{}, io.EOF
	}
	if err != nil {
		return Sample{}, &FileError{r.name, fmt.Sprintf("is damaged: %v", err), "write the capture anew"}
	}
	frame, ok := ethernet(c.data, c.link)
	if !ok {
		return Sample{}, &FileError{r.name, fmt.Sprintf("has packets of link type %d", c.link),
			"capture on an Ethernet device, or with `tcpdump -i any`"}
	}
	return Sample{Time: c.at, Length: max(len(frame), c.length+len(frame)-len(c.data)), Frame: frame}, nil
}

// Close closes the file.
func (r *FileReader) Close() error { return r.file.Close() }

const (
	etherHeader = 14
	sllHeader   = 16 // bytes before the packet in LINKTYPE_LINUX_SLL, of which the last two are the EtherType
	sll2Header  = 20 // bytes in LINKTYPE_LINUX_SLL2, of which the first two are the EtherType

	// https://www.tcpdump.org/linktypes.html
	linkNull     = 0
	linkEthernet = 1
	linkRaw      = 101
	linkLoop     = 108
	linkSLL      = 113
	linkIPv4     = 228
	linkIPv6     = 229
	linkSLL2     = 276
)

// ethernet converts a packet of a link layer to an Ethernet frame. It returns false for an unknown link layer.
func ethernet(data []byte, link uint32) (frame []byte, ok bool) {
	switch link {
	case linkEthernet:
		return data, true
	case linkSLL:
		if len(data) < sllHeader {
			return nil, true
		}
		return framed(binary.BigEndian.Uint16(data[sllHeader-2:]), data[sllHeader:]), true
	case linkSLL2:
		if len(data) < sll2Header {
			return nil, true
		}
		return framed(binary.BigEndian.Uint16(data), data[sll2Header:]), true
	case linkRaw, 12, 14, linkIPv4, linkIPv6: // 12 and 14: raw IP in the numbering of BSDs
		return framed(etherType(data), data), true
	case linkNull, linkLoop:
		if len(data) < 4 {
			return nil, true
		}
		return framed(etherType(data[4:]), data[4:]), true
	}
	return nil, false
}

// etherType returns the EtherType of an IP packet, by the packet's version.
func etherType(ip []byte) uint16 {
	if len(ip) > 0 && ip[0]>>4 == 6 {
		return unix.ETH_P_IPV6
	}
	return unix.ETH_P_IP
}

// framed returns a packet with an Ethernet header in front. The Ethernet addresses are 0.
func framed(etherType uint16, data []byte) []byte {
	frame := make([]byte, etherHeader, etherHeader+len(data))
	binary.BigEndian.PutUint16(frame[etherHeader-2:], etherType)
	return append(frame, data...)
}
