// SPDX-License-Identifier: Apache-2.0

package sample_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/floodwall/floodwall/internal/daemon/sample"
)

// TestWriter reads written packets back, including the packets of a device that NewFileWriter was not told of.
func TestWriter(t *testing.T) {
	at := time.Date(2026, 11, 20, 16, 30, 0, 123456789, time.UTC)
	packets := []sample.Sample{
		{Time: at, Device: "eth0", Length: 60, Frame: bytes.Repeat([]byte{1}, 60), Reason: "rule a: drop"},
		{Time: at.Add(1), Device: "eth2", Length: 9000, Frame: bytes.Repeat([]byte{2}, 127), Reason: "rule b: truncate"},
		{Time: at.Add(time.Hour), Device: "eth1", Length: 128, Frame: bytes.Repeat([]byte{3}, 128), Reason: "x"},
	}
	var file bytes.Buffer
	w, err := sample.NewFileWriter(&file, 128, "eth0", "eth1")
	if err != nil {
		t.Fatal(err)
	}
	if got := read(t, &file); got != "eth0 eth1" {
		t.Errorf("without packets: %s", got)
	}
	want := ""
	for _, p := range packets {
		if err := w.Write(p, p.Reason); err != nil {
			t.Fatal(err)
		}
		want += fmt.Sprintf("%v %s %d %x %s\n", p.Time, p.Device, p.Length, p.Frame, p.Reason)
	}
	if got := read(t, &file); got != want+"eth0 eth1 eth2" {
		t.Errorf("read\n%s\nwant\n%s", got, want)
	}
}

// read returns the text of a file.
func read(t *testing.T, file *bytes.Buffer) (text string) {
	t.Helper()
	r, err := pcapgo.NewNgReader(bytes.NewReader(file.Bytes()), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	device := func(n int) string {
		i, err := r.Interface(n)
		if err != nil || i.SnapLength != 128 {
			t.Fatalf("interface %d: %+v, %v", n, i, err)
		}
		return i.Name
	}
	for {
		data, info, options, err := r.ReadPacketDataWithOptions()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf("%v %s %d %x %s\n", info.Timestamp, device(info.InterfaceIndex), info.Length, data, options.Comments[0])
	}
	for n := range r.NInterfaces() {
		text += device(n) + " "
	}
	return text[:len(text)-1]
}
