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

// streamEnd is one end of a connection. A separate thread reads or writes, on the CPU where the segments of this end arrive. Its calls block in the
// kernel. If Go waited instead, it would first wake another thread, and that would be part of the measurement.
type streamEnd struct {
	file *os.File
	cpu  int
}

// streamPatience is the time for which an end waits for the other end.
const streamPatience = 10 * time.Second

// streamBuffer is the number of bytes in one read or write.
const streamBuffer = 256 << 10

// newStreamEnd duplicates the socket of a connection. The caller must still close the connection.
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
