// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// probe is a UDP packet to a port of the host. The probes that pass show which policy of a trial decides.
type probe struct {
	v6   bool
	port int
	tags int // number of tags in front of IP, each with VLAN 0, which the kernel removes by itself
}

func (p probe) String() string {
	family := "IPv4"
	if p.v6 {
		family = "IPv6"
	}
	if p.tags > 0 {
		return fmt.Sprintf("%s port %d behind %d VLAN tags", family, p.port, p.tags)
	}
	return fmt.Sprintf("%s port %d", family, p.port)
}

// frame returns the probe's frame with a source port.
func (p probe) frame(from int) []byte {
	line := fmt.Sprintf("udp 192.0.2.9:%d > 192.0.2.1:%d", from, p.port)
	if p.v6 {
		line = fmt.Sprintf("udp [2001:db8::9]:%d > [2001:db8::1]:%d", from, p.port)
	}
	spec, err := packet.Parse(line)
	if err != nil {
		panic(err)
	}
	frame := spec.Frame()
	for i := range p.tags {
		tag := [][]byte{{0x81, 0, 0, 0}, {0x88, 0xa8, 0, 0}}[i%2]
		frame = slices.Insert(frame, 12, tag...)
	}
	return frame
}

// The source port of a probe is askPort plus the number of its VLAN tags. The packets of a stream are numbered by their source ports, from streamPort
// on. After streamPorts packets the source ports repeat, because conntrack remembers each for half a minute.
const (
	askPort     = 5
	streamPort  = 10_000
	streamPorts = 1000
)

// namespace is a network namespace. It exists until the file is closed and its processes have ended.
type namespace struct{ file *os.File }

func newNamespace() (*namespace, error) {
	n := &namespace{}
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends here
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			n.file, err = os.Open("/proc/thread-self/ns/net")
		}
		failed <- err
	}()
	return n, <-failed
}

// do runs fn on a thread in the namespace. The sockets that fn opens and the processes that it starts belong to the namespace.
func (n *namespace) do(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- fn()
	}()
	return <-done
}

// trialWire sends probes from the far end of a host's cable. It records which of them reach sockets, which are behind all hooks.
type trialWire struct {
	host    *namespace
	socket  int // where frames are sent
	to      unix.SockaddrLinklayer
	sockets []*net.UDPConn

	mu      sync.Mutex
	got     map[probe]int // counts of the probes of ask
	stream  map[probe]int // counts of the packets of a stream
	last    map[probe]int // the number of the last packet of a stream, 0 for none
	doing   string        // the present phase of the host, for messages
	since   time.Time     // when that began
	strange []string      // descriptions of unexpected packets of a stream
}

// newWire listens on all ports of the probes. The device is fw0, and its other end is fw1.
func newWire(h *namespace, probes []probe) (*trialWire, error) {
	w := &trialWire{host: h, socket: -1, got: map[probe]int{}, stream: map[probe]int{}, last: map[probe]int{}}
	err := h.do(func() (err error) {
		dev, err := netlink.LinkByName("fw1")
		if err != nil {
			return err
		}
		w.to.Ifindex = dev.Attrs().Index
		if w.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		for _, p := range probes {
			if p.v6 {
				continue // the socket of IPv4 takes both
			}
			s, err := net.ListenUDP("udp", &net.UDPAddr{Port: p.port})
			if err != nil {
				return err
			}
			w.sockets = append(w.sockets, s)
			go w.receive(s, p.port)
		}
		return nil
	})
	return w, err
}

func (w *trialWire) close() {
	unix.Close(w.socket)
	for _, s := range w.sockets {
		s.Close()
	}
}

// receive counts the packets that a socket receives, until the socket is closed.
func (w *trialWire) receive(s *net.UDPConn, port int) {
	if raw, err := s.SyscallConn(); err == nil { // a test that is late for a second loses nothing
		raw.Control(func(fd uintptr) { syscall.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20) })
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return
	}
	var buffer [64]byte
	for err == nil {
		var failed error
		err = errors.Join(raw.Read(func(fd uintptr) bool {
			w.mu.Lock() // also while it reads: see allCounted
			defer w.mu.Unlock()
			_, from, err := unix.Recvfrom(int(fd), buffer[:], unix.MSG_DONTWAIT)
			if err == unix.EAGAIN {
				return false
			}
			if failed = err; err == nil {
				w.count(port, from.(*unix.SockaddrInet6))
			}
			return true
		}), failed)
	}
}

// count counts a packet. The caller holds the lock.
func (w *trialWire) count(port int, sender *unix.SockaddrInet6) {
	from, p := sender.Port, probe{v6: !netip.AddrFrom16(sender.Addr).Is4In6(), port: port}
	if from < streamPort {
		p.tags = from - askPort
	}
	if from < streamPort {
		w.got[p]++
		return
	}
	w.stream[p]++
	if p.port/1000*1000 == neither {
		w.notice("%v: a packet of the stream got through", p)
		return
	}
	if last := w.last[p]; last != 0 && (from-last+streamPorts)%streamPorts != 1 {
		w.notice("%v: after packet %d of the stream came %d", p, last, from)
	}
	w.last[p] = from
}

// notice records a packet that should not have arrived, and the phase of the host at that time. The caller holds the lock.
func (w *trialWire) notice(format string, args ...any) {
	if len(w.strange) < 20 {
		into := time.Since(w.since).Round(time.Millisecond)
		w.strange = append(w.strange, fmt.Sprintf(format, args...)+fmt.Sprintf(", %v into: %s", into, w.doing))
	}
}

// enter sets the current phase of the host.
func (w *trialWire) enter(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.doing, w.since = fmt.Sprintf(format, args...), time.Now()
}

// send sends a packet. If the queue of the other end is full because the receiver waits for a CPU, send tries again.
func (w *trialWire) send(p probe, from int) error {
	for {
		if err := unix.Sendto(w.socket, p.frame(from), 0, &w.to); err != unix.ENOBUFS {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// comesWithin is the time to wait for a packet that should pass. grace is the time to wait for packets that were sent before it.
const (
	comesWithin = time.Minute
	grace       = 20 * time.Millisecond
)

// ask sends each probe once. Then it sends the packet last, which both policies pass. It returns the probes that passed.
func (w *trialWire) ask(probes []probe, last probe) (map[probe]bool, error) {
	restore, err := testutil.StayOnOneCPU() // so that packets arrive in their order
	if err != nil {
		return nil, err
	}
	defer restore()
	w.mu.Lock()
	clear(w.got)
	w.mu.Unlock()
	for _, p := range append(slices.Clone(probes), last) {
		if err := w.send(p, askPort+p.tags); err != nil {
			return nil, err
		}
	}
	for end := time.Now().Add(comesWithin); ; time.Sleep(time.Millisecond) {
		w.mu.Lock()
		passed := w.got[last] > 0
		w.mu.Unlock()
		if passed {
			break
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("a packet that both policies pass does not pass: %v", last)
		}
	}
	testutil.Eventually(comesWithin, w.allCounted) // what came before is in the sockets
	time.Sleep(grace)
	w.mu.Lock()
	defer w.mu.Unlock()
	passed := map[probe]bool{}
	for p := range maps.Keys(w.got) {
		passed[p] = true
	}
	return passed, nil
}

// allCounted reports whether all packets that the sockets received are counted.
func (w *trialWire) allCounted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.sockets {
		readable := 0
		raw, err := s.SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { readable, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) })
		}
		if err != nil || readable != 0 {
			return false
		}
	}
	return true
}

// steady sends the probes repeatedly, one a millisecond, until stop is closed. It returns how often it sent each probe.
func (w *trialWire) steady(probes []probe, stop <-chan struct{}) (sent map[probe]int, err error) {
	sent = map[probe]int{}
	restore, err := testutil.StayOnOneCPU() // receive wants the packets in their order
	if err != nil {
		return sent, err
	}
	defer restore()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-stop:
			return sent, nil
		case <-tick.C:
		}
		p := probes[i%len(probes)]
		if err := w.send(p, streamPort+sent[p]%streamPorts); err != nil {
			return sent, err
		}
		sent[p]++
	}
}

// judge compares the sent packets of a stream with the received ones. All packets that both policies pass must have arrived, and no other packets. It
// returns descriptions of the errors.
func (w *trialWire) judge(sent map[probe]int, pass func(probe) bool) []string {
	testutil.Eventually(comesWithin, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for p, n := range sent {
			if pass(p) && w.stream[p] < n {
				return false
			}
		}
		return true
	})
	time.Sleep(10 * grace)
	w.mu.Lock()
	defer w.mu.Unlock()
	var wrong []string
	for p, n := range sent {
		want := 0
		if pass(p) {
			want = n
		}
		if got := w.stream[p]; got != want {
			wrong = append(wrong, fmt.Sprintf("%v: of %d packets %d got through, not %d", p, n, got, want))
		}
	}
	if wrong == nil {
		return nil // reordered packets are no error
	}
	slices.Sort(wrong)
	return append(wrong, w.strange...)
}
