// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/os/instance"
	"github.com/floodwall/floodwall/internal/os/sockets"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// DefaultDir is the directory of the sockets for the instance with the default directory in the BPF file system.
const DefaultDir = instance.DefaultDir

// The sockets in a directory.
const (
	ReadSocket    = "read.sock"
	ControlSocket = "control.sock"
)

// Dir returns the directory of the sockets of an instance. bpffs is the instance's directory in the BPF file system. The standard instance uses
// DefaultDir. Another instance uses a subdirectory of DefaultDir, whose name is the instance's path with - in place of /.
func Dir(bpffs, standard string) string {
	return filepath.Join(DefaultDir, instance.Name(bpffs, standard))
}

// unixSockets are the two sockets of a directory. The directory is locked.
type unixSockets struct {
	read, control net.Listener
	dir           string
	unlock        func()
	note          string // why only root may use the socket for reading; "" when the group may use it
}

// openSockets makes a directory and its sockets. It replaces sockets that a dead process left. When another process serves the directory, the error
// is a *wording.HintError.
func openSockets(dir string) (*unixSockets, error) {
	if len(filepath.Join(dir, ControlSocket)) > sockets.LongestPath {
		return nil, wording.Hinted(fmt.Sprintf("the path of a socket in %s is longer than the %d bytes that the kernel takes", dir, sockets.LongestPath),
			"name a shorter directory with --run")
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, fmt.Errorf("directory of sockets: %w", err)
	}
	if err := instance.MakeDir(dir); err != nil {
		return nil, fmt.Errorf("directory of sockets: %w", err)
	}
	s := &unixSockets{dir: dir}
	err := s.take()
	if err == nil {
		s.control, err = sockets.Listen(filepath.Join(dir, ControlSocket), 0o600, -1)
	}
	if err == nil {
		err = s.openRead()
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// take locks the directory.
func (s *unixSockets) take() (err error) {
	s.unlock, err = instance.TakeFile(filepath.Join(s.dir, "sockets.lock"))
	var held *instance.HeldError
	if errors.As(err, &held) {
		return wording.Hinted(fmt.Sprintf("another daemon serves the sockets of %s: process %d", s.dir, held.Process),
			"end it first, or name another directory with --run")
	}
	return err
}

// openRead makes the socket for reading. The socket belongs to root when this process may not give it to the group.
func (s *unixSockets) openRead() (err error) {
	gid, err := groupID()
	if err != nil {
		s.note = err.Error()
	}
	path := filepath.Join(s.dir, ReadSocket)
	s.read, err = sockets.Listen(path, 0o660, gid)
	if errors.Is(err, os.ErrPermission) && gid >= 0 {
		s.note = fmt.Sprintf("%s stays root's: this process may not give it to group %s, which takes CAP_CHOWN or membership", ReadSocket, operate.Group)
		s.read, err = sockets.Listen(path, 0o660, -1)
	}
	return err
}

// groupID returns the ID of the group that may read, or -1 when there is no such group.
func groupID() (int, error) {
	g, err := user.LookupGroup(operate.Group)
	var none user.UnknownGroupError
	if errors.As(err, &none) {
		return -1, nil
	}
	if err != nil {
		return -1, fmt.Errorf("group %s: %w", operate.Group, err)
	}
	return strconv.Atoi(g.Gid)
}

// close removes the sockets, and also each of their directories that is then empty.
func (s *unixSockets) close() {
	for name, l := range map[string]net.Listener{ReadSocket: s.read, ControlSocket: s.control} {
		if l != nil {
			l.Close()
			os.Remove(filepath.Join(s.dir, name))
		}
	}
	if s.unlock != nil {
		s.unlock()
	}
	os.Remove(s.dir)
	if filepath.Dir(s.dir) == DefaultDir {
		os.Remove(DefaultDir)
	}
}
