// SPDX-License-Identifier: Apache-2.0

// This file writes packets to files for Wireshark and tcpdump.

package sample

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// FileWriter writes packets as pcapng (draft-ietf-opsawg-pcapng), each device as an interface of its own.
type FileWriter struct {
	out        io.Writer
	interfaces map[string]uint32
	snapLength int
}

// NewFileWriter starts a file of packets from devices, with at most snapLength bytes of each packet. More devices may follow later.
func NewFileWriter(out io.Writer, snapLength int, devices ...string) (*FileWriter, error) {
	w := &FileWriter{out: out, interfaces: map[string]uint32{}, snapLength: snapLength}
	head := binary.LittleEndian.AppendUint32(nil, ngOrder)
	head = binary.LittleEndian.AppendUint32(head, 1)              // version 1.0
	head = binary.LittleEndian.AppendUint64(head, math.MaxUint64) // length unknown
	if err := w.block(ngSection, option(head, ngProgram, "floodwall")); err != nil {
		return nil, err
	}
	for _, d := range devices {
		if _, err := w.number(d); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// option adds an option to the body of a block.
func option(body []byte, code uint16, value string) []byte {
	value = value[:min(len(value), math.MaxUint16)]
	body = binary.LittleEndian.AppendUint16(body, code)
	body = binary.LittleEndian.AppendUint16(body, uint16(len(value)))
	return pad(append(body, value...))
}

// pad pads to a multiple of four bytes.
func pad(body []byte) []byte { return append(body, make([]byte, padded(len(body))-len(body))...) }

// block writes a block whose body ends with options.
func (w *FileWriter) block(kind uint32, body []byte) error {
	body = binary.LittleEndian.AppendUint32(body, ngEnd)
	length := uint32(ngEnds + len(body))
	text := binary.LittleEndian.AppendUint32(nil, kind)
	text = append(binary.LittleEndian.AppendUint32(text, length), body...)
	if _, err := w.out.Write(binary.LittleEndian.AppendUint32(text, length)); err != nil {
		return fmt.Errorf("writing a capture: %w", err)
	}
	return nil
}

// number returns the number of a device's interface in the file.
func (w *FileWriter) number(device string) (uint32, error) {
	if n, ok := w.interfaces[device]; ok {
		return n, nil
	}
	const nanoseconds = "\x09"
	body := binary.LittleEndian.AppendUint32(nil, linkEthernet)
	body = binary.LittleEndian.AppendUint32(body, uint32(w.snapLength))
	if err := w.block(ngDevice, option(option(body, ngName, device), ngResolution, nanoseconds)); err != nil {
		return 0, err
	}
	n := uint32(len(w.interfaces))
	w.interfaces[device] = n
	return n, nil
}

// Write writes a packet with a comment. It flushes the packet, so that a reader of a pipe receives it at once.
func (w *FileWriter) Write(p Sample, comment string) error {
	number, err := w.number(p.Device)
	if err != nil {
		return err
	}
	at := uint64(p.Time.UnixNano())
	var body []byte
	for _, n := range []uint32{number, uint32(at >> 32), uint32(at), uint32(len(p.Frame)), uint32(p.Length)} {
		body = binary.LittleEndian.AppendUint32(body, n)
	}
	return w.block(ngPacket, option(pad(append(body, p.Frame...)), ngComment, comment))
}
