package testutil

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// Veth makes two devices that are the ends of a cable, sets them up and gives the first these addresses. The test runs
// Inside.
func Veth(t testing.TB, name, peer string, addresses ...string) {
	t.Helper()
	lines := []string{
		"link add " + name + " type veth peer name " + peer,
		"link set " + name + " up",
		"link set " + peer + " up",
	}
	for _, a := range addresses {
		nodad := ""
		if strings.Contains(a, ":") {
			nodad = " nodad"
		}
		lines = append(lines, "addr add "+a+" dev "+name+nodad)
	}
	for _, line := range lines {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", line, err, out)
		}
	}
}

// Send puts a packet, described as for packet.Parse, n times on the wire at a device.
func Send(device, description string, n int) error {
	return SendFor(device, []string{description}, func(sent int) bool { return sent < n })
}

// SendFor puts packets on the wire at a device, all of them again and again for as long as more, told how often they were
// sent, says so. It takes one socket for all: to close one takes the kernel some milliseconds.
func SendFor(device string, descriptions []string, more func(sent int) bool) error {
	var frames [][]byte
	for _, d := range descriptions {
		spec, err := packet.Parse(d)
		if err != nil {
			return fmt.Errorf("packet %q: %w", d, err)
		}
		frames = append(frames, spec.Frame())
	}
	sent := -1
	return SendFrames(device, func() [][]byte {
		if sent++; !more(sent) {
			return nil
		}
		return frames
	})
}

// SendFrames puts frames on the wire at a device, those that next returns, until it returns none. They must live until it is called again.
func SendFrames(device string, next func() [][]byte) error {
	dev, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("device %s: %w", device, err)
	}
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("packet socket: %w", err)
	}
	defer unix.Close(socket)
	to := &unix.SockaddrLinklayer{Ifindex: dev.Attrs().Index}
	for frames := next(); len(frames) > 0; frames = next() {
		for _, frame := range frames {
			if err := sendFrame(socket, frame, to); err != nil {
				return fmt.Errorf("sending on %s: %w", device, err)
			}
		}
	}
	return nil
}

// sendFrame sends a frame once more as long as the queue of the other end is full, and the frame dropped: the receiver waits for a CPU.
func sendFrame(socket int, frame []byte, to unix.Sockaddr) error {
	err := unix.Sendto(socket, frame, 0, to)
	for ; errors.Is(err, unix.ENOBUFS); err = unix.Sendto(socket, frame, 0, to) {
		time.Sleep(time.Millisecond)
	}
	return err
}

// TellFull has the kernel say, by ENOBUFS, when a datagram of a socket is lost because the queue of the other end of a cable is full, as
// it is for packet sockets (ip(7), IP_RECVERR; udp_send_skb, net/ipv4/udp.c).
func TellFull(c *net.UDPConn) error {
	level, option := unix.IPPROTO_IP, unix.IP_RECVERR
	if a, ok := c.LocalAddr().(*net.UDPAddr); ok && a.IP.To4() == nil {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVERR
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, 1) })
	return errors.Join(failed, err)
}

// foreignName is the name of the program of AttachForeign.
const foreignName = "foreign"

// AttachForeign attaches an XDP program that is not Floodwall's and passes everything, until detach is called.
func AttachForeign(device string) (detach func() error, err error) {
	dev, err := netlink.LinkByName(device)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", device, err)
	}
	const pass = 2 // XDP_PASS of include/uapi/linux/bpf.h
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: foreignName, Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, pass), asm.Return()},
	})
	if err != nil {
		return nil, fmt.Errorf("foreign program: %w", err)
	}
	defer prog.Close()
	l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: dev.Attrs().Index})
	if err != nil {
		return nil, fmt.Errorf("attaching the foreign program: %w", err)
	}
	return l.Close, nil
}
