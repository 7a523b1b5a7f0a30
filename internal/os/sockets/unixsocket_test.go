// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestListen creates a socket at a path where a killed process has left one. It checks the mode, and the peer at each end.
func TestListen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	for range 2 { // the second call replaces the socket and the unfinished file that the first has left
		if err := os.WriteFile(path+suffix, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Listen(path, 0o640, -1)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(path)
		if err != nil || info.Mode() != fs.ModeSocket|0o640 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		client, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []net.Conn{client, server} {
			if uid, pid, err := Peer(c); uid != os.Getuid() || pid != os.Getpid() || err != nil {
				t.Errorf("the peer is user %d, process %d, %v", uid, pid, err)
			}
			c.Close()
		}
		if _, _, err := Peer(client); err == nil {
			t.Error("a closed socket has a peer")
		}
		l.Close()
	}
	if list, err := os.ReadDir(filepath.Dir(path)); len(list) != 1 {
		t.Errorf("the directory has %v, %v, want the socket", list, err)
	}
}

// TestListenFails creates sockets at the path of an existing directory, in a missing directory, and at a path that is too long. No file may remain.
func TestListenFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "is"), 0o700), os.Mkdir(filepath.Join(dir, "is", "x"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"is", "none/it", strings.Repeat("x", LongestPath)} {
		if l, err := Listen(filepath.Join(dir, path), 0o600, -1); l != nil || err == nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if list, err := os.ReadDir(dir); len(list) != 1 {
		t.Errorf("the directory has %v, %v", list, err)
	}
}

// TestPeerOfTCP calls Peer on a TCP socket, which has no peer credentials.
func TestPeerOfTCP(t *testing.T) {
	t.Parallel()
	a, b := net.Pipe()
	defer b.Close()
	defer a.Close()
	if uid, pid, err := Peer(a); uid != -1 || pid != 0 || err == nil {
		t.Errorf("user %d, process %d, %v", uid, pid, err)
	}
}
