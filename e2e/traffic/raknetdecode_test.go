// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/sandertv/go-raknet"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// wire connects two ends without a network. Each end reads the messages that the other has written. It records all messages.
type wire struct {
	net.Conn // of the client: its deadlines are not used
	client   *net.UDPAddr
	up, down chan []byte
	closed   chan struct{}
	once     sync.Once

	mu   sync.Mutex
	sent [2][][]byte // by the client, and by the server
}

func (w *wire) send(from int, to chan []byte, b []byte) (int, error) {
	b = bytes.Clone(b)
	w.mu.Lock()
	w.sent[from] = append(w.sent[from], b)
	w.mu.Unlock()
	select {
	case to <- b:
	case <-w.closed:
	}
	return len(b), nil
}

func (w *wire) receive(from chan []byte, b []byte) (int, error) {
	select {
	case got := <-from:
		return copy(b, got), nil
	case <-w.closed:
		return 0, net.ErrClosed
	}
}

func (w *wire) Write(b []byte) (int, error)      { return w.send(0, w.up, b) }
func (w *wire) Read(b []byte) (int, error)       { return w.receive(w.down, b) }
func (w *wire) Close() error                     { w.once.Do(func() { close(w.closed) }); return nil }
func (w *wire) LocalAddr() net.Addr              { return w.client }
func (w *wire) RemoteAddr() net.Addr             { return w.client }
func (w *wire) SetDeadline(time.Time) error      { return nil }
func (w *wire) SetReadDeadline(time.Time) error  { return nil }
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

func (w *wire) DialContext(context.Context, string, string) (net.Conn, error) { return w, nil }
func (w *wire) ListenPacket(string, string) (net.PacketConn, error)           { return serverEnd{w}, nil }

type serverEnd struct{ *wire }

func (s serverEnd) ReadFrom(b []byte) (int, net.Addr, error) {
	n, err := s.receive(s.up, b)
	return n, s.client, err
}
func (s serverEnd) WriteTo(b []byte, _ net.Addr) (int, error) { return s.send(1, s.down, b) }

// TestRakNetMessages connects a client of a public library to a server of that library, and decodes the messages of both.
func TestRakNetMessages(t *testing.T) {
	for _, address := range []string{"192.0.2.1", "2001:db8::1"} {
		for _, cookies := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, cookies=%t", address, cookies), func(t *testing.T) {
				w := &wire{client: &net.UDPAddr{IP: net.ParseIP(address), Port: 4000}, up: make(chan []byte, 100), down: make(chan []byte, 100), closed: make(chan struct{})}
				l, err := raknet.ListenConfig{UpstreamPacketListener: w, DisableCookies: !cookies}.Listen("")
				if err != nil {
					t.Fatal(err)
				}
				accepted := make(chan struct{})
				defer l.Close()
				go func() { defer close(accepted); l.Accept() }()
				c, err := raknet.Dialer{UpstreamDialer: w}.DialTimeout("", time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				<-accepted // go-raknet v1.15.0 panics when a listener is closed while it hands over a connection
				w.mu.Lock()
				defer w.mu.Unlock()
				var cookie []byte
				for _, b := range w.sent[1] {
					if b[0] == 6 && cookies {
						cookie = b[26:30]
					}
				}
				var opened, named, connected int
				for _, b := range w.sent[0] {
					id, ok := packet.RakNet.Named(b, 0)
					switch {
					case packet.RakNet.Opens(b):
						opened++
						if len(b) < 500 || !packet.RakNet.Asks(b) || ok {
							t.Errorf("a first request of %d bytes is taken for another message", len(b))
						}
					case ok:
						named++
						if !bytes.Equal(id, cookie) || !packet.RakNet.Asks(b) {
							t.Errorf("a second request has the cookie % x, the reply % x", id, cookie)
						}
					case b[0]&0x80 != 0:
						connected++
					}
				}
				if opened == 0 || named > 0 != cookies || connected == 0 {
					t.Errorf("of %d messages %d are first requests, %d second ones with a cookie, %d of the connection", len(w.sent[0]), opened, named, connected)
				}
			})
		}
	}
}
