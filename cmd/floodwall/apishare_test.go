// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/daemon/operate"
)

// socketsOf runs a function in a thread whose sockets belong to the user uid. The kernel counts these sockets for that user.
func socketsOf(uid int, do func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // the thread ends with the function
		unix.Setfsuid(uid)
		do()
	}()
	<-ended
}

// dialAs connects as the user uid and sends a request.
func dialAs(uid int, address, request string) (c net.Conn, err error) {
	socketsOf(uid, func() {
		if c, err = net.Dial("tcp", address); err == nil {
			_, err = io.WriteString(c, request)
		}
	})
	return c, err
}

// flood opens connections as the user uid without pause, and sends a request on each. It closes none of them. The function end stops the flood and
// closes the connections.
func flood(uid int, address, request string, opened *atomic.Int64) (end func()) {
	var over atomic.Bool
	ended := make(chan struct{})
	go socketsOf(uid, func() {
		defer close(ended)
		var held []net.Conn
		defer func() {
			for _, c := range held {
				c.Close()
			}
		}()
		for !over.Load() {
			c, err := net.Dial("tcp", address)
			if err != nil {
				continue
			}
			c.(*net.TCPConn).SetLinger(0) // its port is free for others as soon as it is closed
			io.WriteString(c, request)    // one that was refused cannot be written to
			opened.Add(1)
			if held = append(held, c); len(held) > 500 { // the daemon has closed those before the last 64
				held[0].Close()
				held = held[1:]
			}
		}
	})
	return func() {
		over.Store(true)
		<-ended
	}
}

// TestLoopbackIsShared floods the loopback address: user nobody opens connections as fast as possible and sends endless requests. Each request of
// root and of another user must be answered at the first attempt. Existing connections of these two users must stay open: a persistent connection,
// and eight connections that follow events.
func TestLoopbackIsShared(t *testing.T) {
	if !inside(t) {
		return
	}
	const nobody, neighbor, address = 65534, 12345, "127.0.0.1:9810"
	mustFloodwall(t, "apply", listening(t, "listen: "+address))
	startDaemon(t)
	waitFor(t, "an answer on "+address, func() bool { return reachable(address) })
	var streams []*bufio.Reader
	for range 8 {
		c, err := dialAs(neighbor, address, "GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		streams = append(streams, bufio.NewReader(c))
	}
	kept, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	again := bufio.NewReader(kept)
	const health = "GET /v1/health HTTP/1.1\r\nHost: localhost\r\n"
	for name, request := range map[string]string{
		"a body that never ends": "POST /v1/explain HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n\r\n{",
		"nothing":                "", "half a head": "GET /v1/status HTTP/1.1\r\nHost: localhost\r\nX: ",
	} {
		var opened atomic.Int64
		end := flood(nobody, address, request, &opened)
		waitFor(t, "the flood", func() bool { return opened.Load() > 200 })
		for i := range 20 {
			for _, user := range []int{0, neighbor} {
				c, err := dialAs(user, address, health+"Connection: close\r\n\r\n")
				if err != nil {
					t.Errorf("%s: question %d of user %d: %v", name, i, user, err)
					continue
				}
				if text, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 200 ") {
					t.Errorf("%s: question %d of user %d: %q, %v", name, i, user, text, err)
				}
				c.Close()
			}
			if text, err := askAgain(kept, again, health+"\r\n"); err != nil {
				t.Fatalf("%s: question %d on a connection that was there before: %q, %v", name, i, text, err)
			}
		}
		end()
		t.Logf("%s: %d connections of user nobody", name, opened.Load())
	}
	if a, err := post(controlSocket, "/v1/apply", operate.Order{Policy: listening(t, "listen: "+address)}); err != nil || a.status != 200 {
		t.Fatal(a, err)
	}
	for i, s := range streams {
		for line := ""; !strings.HasPrefix(line, "data: "); {
			if line, err = s.ReadString('\n'); err != nil {
				t.Fatalf("stream %d of a user was cut: %v", i, err)
			}
		}
	}
}

// askAgain sends a request on a persistent connection.
func askAgain(c net.Conn, in *bufio.Reader, request string) (string, error) {
	if _, err := io.WriteString(c, request); err != nil {
		return "", err
	}
	a, err := http.ReadResponse(in, nil)
	if err != nil {
		return "", err
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if a.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", a.StatusCode)
	}
	return string(text), err
}
