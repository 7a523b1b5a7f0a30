// This file writes packets to files that Wireshark and tcpdump read.

package sample

import (
	"fmt"
	"io"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// FilePacket is a packet that was seen.
type FilePacket struct {
	Time    time.Time
	Device  string // that it came from
	Length  int    // of the whole frame
	Frame   []byte // as many of them as there are
	Comment string
}

// FileWriter writes packets as pcapng (draft-ietf-opsawg-pcapng), each device as an interface of its own.
type FileWriter struct {
	out        *pcapgo.NgWriter
	interfaces map[string]int
	snapLength int
}

// NewFileWriter begins a file of packets from devices, at least one, of which at most snapLength bytes are there. More
// devices may show later.
func NewFileWriter(out io.Writer, snapLength int, devices ...string) (*FileWriter, error) {
	w := &FileWriter{interfaces: map[string]int{devices[0]: 0}, snapLength: snapLength}
	options := pcapgo.DefaultNgWriterOptions
	options.SectionInfo.Application = "floodwall"
	var err error
	if w.out, err = pcapgo.NewNgWriterInterface(out, w.describe(devices[0]), options); err != nil {
		return nil, fmt.Errorf("beginning a capture: %w", err)
	}
	for _, d := range devices[1:] {
		if _, err := w.number(d); err != nil {
			return nil, err
		}
	}
	return w, w.flush()
}

func (w *FileWriter) describe(device string) pcapgo.NgInterface {
	description := pcapgo.DefaultNgInterface
	description.Name, description.LinkType, description.SnapLength = device, layers.LinkTypeEthernet, uint32(w.snapLength)
	return description
}

// number is the number of a device in the file.
func (w *FileWriter) number(device string) (int, error) {
	if n, ok := w.interfaces[device]; ok {
		return n, nil
	}
	n, err := w.out.AddInterface(w.describe(device))
	if err != nil {
		return 0, fmt.Errorf("writing a capture: %w", err)
	}
	w.interfaces[device] = n
	return n, nil
}

// Write writes a packet, through to the file: who reads from a pipe sees it at once.
func (w *FileWriter) Write(p FilePacket) error {
	number, err := w.number(p.Device)
	if err != nil {
		return err
	}
	info := gopacket.CaptureInfo{
		Timestamp: p.Time, InterfaceIndex: number, CaptureLength: len(p.Frame), Length: p.Length,
	}
	options := pcapgo.NgPacketOptions{Comments: []string{p.Comment}}
	if err := w.out.WritePacketWithOptions(info, p.Frame, options); err != nil {
		return fmt.Errorf("writing a capture: %w", err)
	}
	return w.flush()
}

func (w *FileWriter) flush() error {
	if err := w.out.Flush(); err != nil {
		return fmt.Errorf("writing a capture: %w", err)
	}
	return nil
}
