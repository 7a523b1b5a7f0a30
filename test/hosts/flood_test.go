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

// floodSeconds is how long a flood lasts, and floodBurst the frames that a queue can hold.
const (
	floodSeconds = 2
	floodBurst   = 100
)

// floods are those that clients ask beside. A socket's frames come by the cable. It cannot send so many as a network card receives: those
// of the faster flood begin their way at the host's device, as a card's do.
var floods = []struct {
	rate  int // SYNs of a second, where the processor is free
	place string
	send  func(to string, mac net.HardwareAddr, rate int, sent *int, stop chan bool) error
}{
	{20_000, "out", sendSYNs},
	{500_000, "host", receiveSYNs},
}

// flooded has clients ask while SYNs come: as many as get no answer without Floodwall when the queue of SYNs is full.
func (s *scene) flooded() {
	s.Helper()
	if s.host.flood == "" {
		return
	}
	for _, f := range floods {
		before := s.cookies()
		stop, done := make(chan bool), make(chan error)
		start, sent := time.Now(), 0
		s.places[f.place].Begin(func() { done <- f.send(s.host.flood, s.mac(), f.rate, &sent, stop) })
		time.Sleep(500 * time.Millisecond) // a flood is known by then
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

// cookies is how many SYNs XDP has answered, and -1 where it answers none.
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

// sendSYNs sends SYNs from ever other addresses until it is to stop.
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

// synFrame is a SYN. An address that is none ends the program.
func synFrame(from, to string, mac net.HardwareAddr) []byte {
	spec, err := packet.Parse(fmt.Sprintf("tcp %s > %s S seq=0", from, to))
	if err != nil {
		panic(err)
	}
	frame := spec.Frame()
	copy(frame, mac)
	return frame
}

// receiveSYNs has the device of the host receive SYNs from 65,536 addresses until it is to stop: XDP frames that the kernel makes for
// BPF_PROG_TEST_RUN, and that a program passes (xdp_test_run_batch, net/bpf/test_run.c). Programs of generic XDP see them, those of a driver do not.
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

// Offsets in a frame of TCP over IPv4.
const (
	atIdentification = 18
	atSource         = 28 // of its second half
	atSequence       = 40 // of the second half of the sequence number
)

// writeSYN are the instructions that write the whole frame, as the kernel uses its memory again, and pass it. Half of the source is a random
// number, the identification and half of the sequence number are its complement. So both checksums stay right: in the frame they are of 0xffff and 0.
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
