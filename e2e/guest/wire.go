// SPDX-License-Identifier: Apache-2.0

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

// Wire is the test's end of a network card's cable. The card receives exactly the bytes that a test sends, because this host's network stack is not
// involved. On the connection to QEMU, each frame follows its length in 4 bytes (net/stream.c).
type Wire struct {
	listener *net.UnixListener
	mu       sync.Mutex
	conn     net.Conn // nil while the machine is off
	frames   chan []byte
}

// frameQueue is the maximum number of received frames that a Wire stores until the test reads them. Further frames are lost.
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

// connect starts to use a connection to QEMU after power-on, and to receive the card's frames.
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

// cut closes the connection after power-off.
func (w *Wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn != nil {
		w.conn.Close()
		w.conn = nil
	}
}

// Send sends a frame to the card. It blocks while the card accepts no frame, and reports whether the machine is on.
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

// Until returns the next frame from the card for which the function is returns true. It returns nil if no such frame arrives within the limit.
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

// Drain discards the frames that have arrived from the card.
func (w *Wire) Drain() {
	for {
		select {
		case <-w.frames:
		default:
			return
		}
	}
}
