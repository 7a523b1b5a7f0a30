// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// floodSeconds is the length of a flood. floodBurst is the number of frames that a queue can hold.
const (
	floodSeconds = 2
	floodBurst   = 100
)

// floods are the floods during which clients send questions. The slower flood sends frames from a socket over the cable. A socket cannot send as many
// frames as a network card can receive. So the frames of the faster flood start at the host's device, like those of a card.
var floods = []struct {
	rate  int // SYNs a second, if the CPU is not busy
	place string
	send  func(to string, mac net.HardwareAddr, rate int, sent *int, stop chan bool) error
}{
	{20_000, "out", sendSYNs},
	{500_000, "host", receiveSYNs},
}

// flooded makes clients send questions during floods of SYNs. Without Floodwall, these floods would fill the queue of SYNs, and no client would get
// an answer.
func (s *scene) flooded() {
	s.Helper()
	if s.host.flood == "" {
		return
	}
	for _, f := range floods {
		before := s.cookies()
		stop, done := make(chan bool), make(chan error)
		start, sent := time.Now(), 0
		s.places[f.place].Begin(func() { done <- f.send(s.host.flood, s.mac("host", "eth0"), f.rate, &sent, stop) })
		time.Sleep(500 * time.Millisecond) // the flood has been detected by then
		round := 0
		for end := time.Now().Add(floodSeconds * time.Second); !s.Failed() && (round < 3 || time.Now().Before(end)); round++ {
			when := fmt.Sprintf("beside %d SYNs a second, round %d", f.rate, round)
			s.each(s.asks(), func(a ask) bool { return a.proto == "tcp" && a.want == "served" }, when)
			s.each(s.parse("out tcp "+s.host.flood+" served"), func(ask) bool { return true }, when)
		}
		close(stop)
		if err := <-done; err != nil {
			s.Error(err)
		}
		if answered := s.cookies() - before; before >= 0 && answered < sent/2 {
			s.Errorf("XDP answered %d of %d SYNs", answered, sent)
		}
		s.Logf("%d rounds beside %.0f SYNs a second", round, float64(sent)/time.Since(start).Seconds())
	}
}

// cookies returns the number of SYNs that XDP has answered, or -1 if XDP does not answer SYNs.
func (s *scene) cookies() int {
	out, _ := s.run(program, "status")
	row := regexp.MustCompile(`(?m)^web-tcp:answered +xdp +sent +([0-9,]+)`).FindStringSubmatch(out)
	if row == nil {
		return -1
	}
	n, err := strconv.Atoi(strings.ReplaceAll(row[1], ",", ""))
	if err != nil {
		s.Fatal(err)
	}
	return n
}

// sendSYNs sends SYNs from changing addresses until stop is closed. It counts them in sent.
func sendSYNs(to string, mac net.HardwareAddr, rate int, sent *int, stop chan bool) error {
	start := time.Now()
	return testutil.SendFrames("eth0", func() (frames [][]byte) {
		select {
		case <-stop:
			return nil
		default:
		}
		time.Sleep(time.Until(start.Add(time.Duration(*sent) * time.Second / time.Duration(rate))))
		for range floodBurst {
			*sent++
			from := fmt.Sprintf("198.51.%d.%d:%d", 100+*sent>>8%4, *sent&0xff, 1024+*sent%60000)
			frames = append(frames, synFrame(from, to, mac))
		}
		return frames
	})
}

// synFrame returns a frame with a SYN. It panics if an address is invalid.
func synFrame(from, to string, mac net.HardwareAddr) []byte {
	spec, err := packet.Parse(fmt.Sprintf("tcp %s > %s S seq=0", from, to))
	if err != nil {
		panic(err)
	}
	frame := spec.Frame()
	copy(frame, mac)
	return frame
}

// receiveSYNs makes the host's device receive SYNs from 65,536 addresses until stop is closed. The kernel makes the frames for BPF_PROG_TEST_RUN as
// XDP frames, and a program passes them (xdp_test_run_batch, net/bpf/test_run.c). Programs of generic XDP see these frames. Programs in native mode
// do not.
func receiveSYNs(to string, mac net.HardwareAddr, rate int, sent *int, stop chan bool) error {
	dev, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	frame := synFrame("198.51.255.255:4000", to, mac)
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "syns", Type: ebpf.XDP, License: "Dual BSD/GPL", Instructions: writeSYN(frame)})
	if err != nil {
		return err
	}
	defer program.Close()
	md := struct{ Data, DataEnd, DataMeta, IngressIfindex, RXQueue, EgressIfindex uint32 }{
		DataEnd: uint32(len(frame)), IngressIfindex: uint32(dev.Attrs().Index),
	}
	each := rate / 10 // the kernel takes some 20 ms to prepare and to end a run
	for start := time.Now(); ; {
		select {
		case <-stop:
			return nil
		default:
		}
		time.Sleep(time.Until(start.Add(time.Duration(*sent) * time.Second / time.Duration(rate))))
		_, err := program.Run(&ebpf.RunOptions{Data: frame, Context: md, Repeat: uint32(each), Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES})
		if err != nil {
			return os.NewSyscallError("BPF_PROG_TEST_RUN", err)
		}
		*sent += each
	}
}

// Offsets of fields in a TCP frame over IPv4.
const (
	atIdentification = 18
	atSource         = 28 // the second half of the source address
	atSequence       = 40 // the second half of the sequence number
)

// writeSYN returns instructions that write the whole frame and pass it. They write the whole frame because the kernel reuses the frame's memory. They
// set half of the source address to a random number, and the identification and half of the sequence number to its complement. In the given frame
// these fields are 0xffff and 0, which have the same sum. So both checksums stay correct.
func writeSYN(frame []byte) asm.Instructions {
	const any, data, complement = asm.R7, asm.R8, asm.R9
	code := asm.Instructions{
		asm.LoadMem(data, asm.R1, 0, asm.Word),
		asm.LoadMem(asm.R2, asm.R1, 4, asm.Word),
		asm.Mov.Reg(asm.R6, data),
		asm.Add.Imm(asm.R6, int32(len(frame))),
		asm.JGT.Reg(asm.R6, asm.R2, "pass"),
		asm.FnGetPrandomU32.Call(),
		asm.Mov.Reg(any, asm.R0),
		asm.Mov.Reg(complement, any),
		asm.Xor.Imm(complement, -1),
	}
	for at := 0; at+1 < len(frame); at += 2 {
		code = append(code, asm.StoreImm(data, int16(at), int64(binary.NativeEndian.Uint16(frame[at:])), asm.Half))
	}
	return append(code,
		asm.StoreMem(data, atSource, any, asm.Half),
		asm.StoreMem(data, atIdentification, complement, asm.Half),
		asm.StoreMem(data, atSequence, complement, asm.Half),
		asm.Mov.Imm(asm.R0, 2).WithSymbol("pass"), // XDP_PASS
		asm.Return(),
	)
}
