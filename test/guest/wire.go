package guest

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Wire is the end of a network card's cable. What is sent here is what the card receives, byte by byte; nothing of this
// host's network is between. QEMU writes frames behind their length (net/stream.c).
type Wire struct {
	listener *net.UnixListener
	mu       sync.Mutex
	conn     net.Conn // nil while the machine is off
	frames   chan []byte
}

// frameQueue is how many frames that nobody has asked for are kept; later ones are lost.
const frameQueue = 4096

func newWire(t testing.TB, path string) *Wire {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return &Wire{listener: listener, frames: make(chan []byte, frameQueue)}
}

// connect is called with the connection of a machine that has been turned on.
func (w *Wire) connect(conn net.Conn) {
	w.mu.Lock()
	w.conn = conn
	w.mu.Unlock()
	go func() {
		in := bufio.NewReader(conn)
		for {
			var length [4]byte
			if _, err := io.ReadFull(in, length[:]); err != nil {
				return
			}
			frame := make([]byte, binary.BigEndian.Uint32(length[:]))
			if _, err := io.ReadFull(in, frame); err != nil {
				return
			}
			select {
			case w.frames <- frame:
			default:
			}
		}
	}()
}

// cut is called when the machine is off.
func (w *Wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn != nil {
		w.conn.Close()
		w.conn = nil
	}
}

// Send puts a frame on the wire. It waits while the card takes none, and reports whether the machine is on.
func (w *Wire) Send(frame []byte) bool {
	w.mu.Lock()
	conn := w.conn
	w.mu.Unlock()
	if conn == nil {
		return false
	}
	_, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...))
	return err == nil
}

// Until returns the first frame from the card for which is is true; nil when none comes in time.
func (w *Wire) Until(is func(frame []byte) bool, limit time.Duration) []byte {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case frame := <-w.frames:
			if is(frame) {
				return frame
			}
		case <-timer.C:
			return nil
		}
	}
}

// Drain forgets the frames that have come from the card.
func (w *Wire) Drain() {
	for {
		select {
		case <-w.frames:
		default:
			return
		}
	}
}
