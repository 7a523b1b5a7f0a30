// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"errors"
	"fmt"
	"net"
	"os"
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

// Veth makes a pair of connected devices, sets both up, and adds the addresses to the first one. It returns when both can send. The test must run
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
	for _, device := range []string{name, peer} {
		WaitUp(t, device)
	}
}

// WaitUp waits until the kernel has noticed the carrier of a device. On a busy machine this takes longer (net/core/link_watch.c). Until then packets
// that leave by the device are lost.
func WaitUp(t testing.TB, device string) {
	t.Helper()
	if !Eventually(time.Minute, func() bool {
		dev, err := netlink.LinkByName(device)
		if err != nil {
			t.Fatalf("device %s: %v", device, err)
		}
		return dev.Attrs().OperState == netlink.OperUp
	}) {
		t.Fatalf("the kernel notices no carrier of %s", device)
	}
}

// Tun makes a device whose packets begin with the IP header. What is written to the file arrives on the device, what leaves by the device is read from
// the file. The device has no addresses and is down. It ends with the file.
func Tun(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Send sends a packet n times through a device. The description has the notation of packet.Parse.
func Send(device, description string, n int) error {
	return SendFor(device, []string{description}, func(sent int) bool { return sent < n })
}

// SendFor sends all packets through a device repeatedly until more returns false. The parameter of more is the number of rounds that were sent.
// SendFor uses one socket for all packets, because the kernel takes some milliseconds to close a socket.
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

// SendFrames sends the frames that next returns through a device, until next returns none. The frames must stay valid until the next call.
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

// sendFrame sends a frame. It tries again as long as the frame is dropped because the queue of the other end is full. In this case the receiver waits
// for a CPU.
func sendFrame(socket int, frame []byte, to unix.Sockaddr) error {
	err := unix.Sendto(socket, frame, 0, to)
	for ; errors.Is(err, unix.ENOBUFS); err = unix.Sendto(socket, frame, 0, to) {
		time.Sleep(time.Millisecond)
	}
	return err
}

// TellFull makes the kernel return ENOBUFS if a datagram is lost because the queue of the other end of a cable is full. Packet sockets always get
// this error (ip(7), IP_RECVERR; udp_send_skb, net/ipv4/udp.c).
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

// foreignName is the name of the XDP program that AttachForeign attaches.
const foreignName = "foreign"

// AttachForeign attaches an XDP program that passes everything and does not belong to Floodwall. The program stays until the caller calls detach.
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

// Occupy attaches programs of another tool to a device, so that no other program can be attached there, at XDP or at the ingress of tc. They stay until
// the caller calls detach.
func Occupy(device string) (detach func() error, err error) {
	ends := []func() error{}
	detach = func() (err error) {
		for _, end := range ends {
			err = errors.Join(err, end())
		}
		ends = nil
		return err
	}
	end, err := AttachForeign(device)
	if err != nil {
		return nil, err
	}
	ends = append(ends, end)
	for err == nil {
		if end, err = AttachAtTC(device, ebpf.AttachTCXIngress, link.Tail(), NextAtTC()); err == nil {
			ends = append(ends, end)
		}
	}
	if !errors.Is(err, unix.ERANGE) { // all BPF_MPROG_MAX places are taken: include/linux/bpf_mprog.h
		return nil, errors.Join(err, detach())
	}
	return detach, nil
}

// NextAtTC is a program at tc that leaves each packet to the next program (TCX_NEXT of include/uapi/linux/bpf.h).
func NextAtTC() asm.Instructions { return asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()} }

// AttachAtTC attaches a program of another tool to a hook of tc, by a link of TCX. It has the name plugin. It stays until the caller calls detach.
func AttachAtTC(device string, hook ebpf.AttachType, anchor link.Anchor, code asm.Instructions) (detach func() error, err error) {
	dev, err := netlink.LinkByName(device)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", device, err)
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "plugin", Type: ebpf.SchedCLS, License: "GPL", Instructions: code})
	if err != nil {
		return nil, fmt.Errorf("program of another tool: %w", err)
	}
	defer prog.Close()
	l, err := link.AttachTCX(link.TCXOptions{Interface: dev.Attrs().Index, Program: prog, Attach: hook, Anchor: anchor})
	if err != nil {
		return nil, fmt.Errorf("attaching the program of another tool: %w", err)
	}
	return l.Close, nil
}

// Flood sends a packet through a device again and again, with a pause in between, until the returned function is called.
func Flood(t testing.TB, device, description string, pause time.Duration) (stop func()) {
	t.Helper()
	end, ended := make(chan struct{}), make(chan error)
	go func() {
		ended <- SendFor(device, []string{description}, func(int) bool {
			select {
			case <-end:
				return false
			case <-time.After(pause):
				return true
			}
		})
	}()
	return func() {
		t.Helper()
		close(end)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
