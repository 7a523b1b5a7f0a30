package experiment

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/lab"
)

// streamEnd is an end of a connection, which a thread of its own reads or writes on the CPU where the end's segments
// arrive. Its calls wait in the kernel: Go's own waiting wakes another thread first, which the measurement would be of.
type streamEnd struct {
	file *os.File
	cpu  int
}

// streamPatience is how long an end waits for the other.
const streamPatience = 10 * time.Second

// streamBuffer is how many bytes are read or written at a time.
const streamBuffer = 256 << 10

// newStreamEnd takes over the socket of a connection, of which the caller still has to close its own descriptor.
func newStreamEnd(c net.Conn, cpu int) (*streamEnd, error) {
	f, err := c.(*net.TCPConn).File()
	if err != nil {
		return nil, err
	}
	e := &streamEnd{f, cpu}
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

// streamCall is read(2) or write(2).
type streamCall func(fd int, bytes []byte) (int, error)

// streamed is what became of an end's bytes.
type streamed struct {
	ran time.Duration // the thread's time of its CPU
	err error
}

// start has a thread move bytes.
func (e *streamEnd) start(call streamCall, bytes int64) <-chan streamed {
	done := make(chan streamed, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := lab.Place(e.cpu, lab.Urgent); err != nil {
			done <- streamed{err: err}
			return
		}
		err := e.run(call, bytes)
		var t unix.Timespec
		clocked := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
		done <- streamed{time.Duration(t.Nano()), errors.Join(err, clocked)}
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
