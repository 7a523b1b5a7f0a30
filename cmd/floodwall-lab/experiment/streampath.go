// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/lab"
)

// streamPath is the path of connections from a host to an address of another host. It has the CPU of each side, and the devices whose receive threads
// run on this CPU.
type streamPath struct {
	from, to *lab.Host
	at       netip.AddrPort
	cpus     [2]int
	devices  [2][]*lab.Device
	ordinary bool // the ends have the priority of ordinary programs; otherwise they go before these
}

// open opens a connection. Both ends are established when it returns, also with a proxy between them.
func (p *streamPath) open(ctx context.Context) (near, far *streamEnd, err error) {
	ctx, cancel := context.WithTimeout(ctx, streamPatience)
	defer cancel()
	l, err := p.listen(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	dialed, err := p.from.Dial(ctx, "tcp", p.at)
	if err != nil {
		return nil, nil, err
	}
	defer dialed.Close()
	if err := l.SetDeadline(time.Now().Add(streamPatience)); err != nil {
		return nil, nil, err
	}
	accepted, err := l.Accept()
	if err != nil {
		return nil, nil, err
	}
	defer accepted.Close()
	priority := report.Choice(p.ordinary, lab.Ordinary, lab.Urgent)
	if near, err = newStreamEnd(dialed, p.cpus[0], priority); err != nil {
		return nil, nil, err
	}
	if far, err = newStreamEnd(accepted, p.cpus[1], priority); err != nil {
		return nil, nil, errors.Join(err, near.close())
	}
	return near, far, nil
}

// listen opens a socket like that of most servers: without MPTCP, which is Go's default.
func (p *streamPath) listen(ctx context.Context) (l *net.TCPListener, err error) {
	err = p.to.Do(func() error {
		var config net.ListenConfig
		config.SetMultipathTCP(false)
		opened, err := config.Listen(ctx, "tcp", p.at.String())
		if err == nil {
			l = opened.(*net.TCPListener)
		}
		return err
	})
	return l, err
}

// read opens a connection and sends bytes over it, from the far end if back is true. The figures are two rates in megabytes per second, one by the
// elapsed time, the other by the CPU time of the busier CPU, and the CPU time of both for a gigabyte.
func (p *streamPath) read(ctx context.Context, back bool, bytes int64) (read rig.Reading, err error) {
	near, far, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, near.close(), far.close()) }()
	before, err := p.received()
	if err != nil {
		return nil, err
	}
	sends, takes := streamCall(unix.Write), streamCall(unix.Read)
	if back {
		sends, takes = takes, sends
	}
	began := time.Now()
	started, other := near.start(sends, bytes), far.start(takes, bytes)
	here, there := <-started, <-other
	took := time.Since(began)
	after, looked := p.received()
	ran := [2]time.Duration{here.ran + after[0] - before[0], there.ran + after[1] - before[1]}
	perSecond := func(d time.Duration) float64 { return float64(bytes) / 1e6 / d.Seconds() }
	read = rig.Reading{
		"MB/s": perSecond(took), "able-MB/s": perSecond(max(ran[0], ran[1])), "cpu-s/GB": (ran[0] + ran[1]).Seconds() / (float64(bytes) / 1e9),
	}
	return read, errors.Join(here.err, there.err, looked)
}

// received returns the run time of the receive threads of both sides.
func (p *streamPath) received() (ran [2]time.Duration, err error) {
	for i, devices := range p.devices {
		for _, d := range devices {
			more, err := d.Ran()
			if err != nil {
				return ran, err
			}
			ran[i] += more
		}
	}
	return ran, nil
}

// streamEnd is one end of a connection. A separate thread reads or writes, on the CPU where the segments of this end arrive. Its calls block in the
// kernel. If Go waited instead, it would first wake another thread, and that would be part of the measurement.
type streamEnd struct {
	file          *os.File
	cpu, priority int
}

// streamPatience is the time for which an end waits for the other end.
const streamPatience = time.Minute

// streamBuffer is the number of bytes in one read or write.
const streamBuffer = 256 << 10

// newStreamEnd duplicates the socket of a connection. The caller must still close the connection.
func newStreamEnd(c net.Conn, cpu, priority int) (*streamEnd, error) {
	f, err := c.(*net.TCPConn).File()
	if err != nil {
		return nil, err
	}
	e := &streamEnd{f, cpu, priority}
	patience := unix.NsecToTimeval(streamPatience.Nanoseconds())
	err = unix.SetNonblock(e.fd(), false)
	for _, option := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		err = errors.Join(err, unix.SetsockoptTimeval(e.fd(), unix.SOL_SOCKET, option, &patience))
	}
	if err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

func (e *streamEnd) fd() int      { return int(e.file.Fd()) }
func (e *streamEnd) close() error { return e.file.Close() }

// streamCall is a function such as read(2) or write(2).
type streamCall func(fd int, bytes []byte) (int, error)

// streamed is the result of an end's transfer.
type streamed struct {
	ran time.Duration // the thread's CPU time
	err error
}

// start transfers bytes on a new thread.
func (e *streamEnd) start(call streamCall, bytes int64) <-chan streamed {
	done := make(chan streamed, 1)
	go func() {
		var s streamed
		s.err = onCPU(e.cpu, e.priority, func() (err error) {
			err = e.run(call, bytes)
			var clocked error
			s.ran, clocked = threadTime()
			return errors.Join(err, clocked)
		})
		done <- s
	}()
	return done
}

func (e *streamEnd) run(call streamCall, bytes int64) error {
	buffer, fd := make([]byte, streamBuffer), e.fd()
	for bytes > 0 {
		n, err := call(fd, buffer[:min(bytes, streamBuffer)])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return fmt.Errorf("%d bytes before the end: %w", bytes, err)
		case n == 0:
			return fmt.Errorf("%d bytes before the end: %w", bytes, io.ErrUnexpectedEOF)
		}
		bytes -= int64(n)
	}
	return nil
}
